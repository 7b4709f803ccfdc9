#pragma once

#include "attune/result.hpp"
#include "engine/module/module.hpp"

#include <filesystem>
#include <memory>
#include <string_view>

namespace attune {

/// The values of a base that is not loaded, as an engine with this `dtype` (a word of weight_form()) would serve them
/// on our kernels: for checking modules. Reads headers now and rows when asked. Errors as load_model.
Result<std::shared_ptr<const BaseValues>> open_base_values(const std::filesystem::path& model, std::string_view dtype);

}  // namespace attune
