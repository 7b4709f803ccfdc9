#pragma once

namespace attune {

/// KV positions per block. 16 keeps a chat's waste under 8 positions on average and a block table short.
inline constexpr int kBlockTokens = 16;

}  // namespace attune
