#pragma once

#include "attune/request.hpp"
#include "net/api_request.hpp"
#include "net/field_reader.hpp"

namespace attune {

/// The sampling fields that both endpoints share; the first fault is left in `fields`.
SamplingParams decode_sampling(FieldReader& fields, const DecodeContext& context);

}  // namespace attune
