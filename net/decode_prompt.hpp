#pragma once

#include "attune/request.hpp"
#include "net/api_request.hpp"
#include "net/field_reader.hpp"

#include <vector>

namespace attune {

/// `prompt`: a string, token ids, or a list of either. Empty in any form is a fault, left in `fields` like all others.
std::vector<Prompt> decode_prompts(FieldReader& fields, const DecodeContext& context, bool add_special_tokens);

/// `messages` and what goes to the chat template with them. Parts of any type but text are refused; the arguments of
/// tool calls become objects. Whether there is a template is known later: a module may bring one.
ChatPrompt decode_chat_prompt(FieldReader& fields, const DecodeContext& context);

/// A list of token ids within the vocabulary; faults name the index.
std::vector<TokenId> decode_ids(FieldReader& fields, std::string_view name, const boost::json::array& list,
                                int vocab_size, const std::string& where);

}  // namespace attune
