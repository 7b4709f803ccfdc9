#pragma once

#include "attune/error.hpp"

#include <string>
#include <string_view>

namespace attune {

/// The one table from the house's failures to HTTP.
int http_status(Errc code);
/// vLLM's name for errors of that status.
std::string_view error_type(int status);

/// `{"message":…,"type":…,"param":…,"code":…}`; `type` empty: the status decides.
std::string error_object(const Error& error, std::string_view type = {});
/// The same for a status that no Errc has.
std::string error_object(int status, std::string_view message, std::string_view param = {}, std::string_view type = {});
/// `{"error":{…}}`: the body of an HTTP error and the data of an error event.
std::string error_body(const Error& error, std::string_view type = {});

}  // namespace attune
