#pragma once

#include "attune/gateway.hpp"
#include "net/strand.hpp"
#include "net/token_stream.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace attune {

/// A client request under way: its prompts at the Gateway and their streams. Lives on one strand; what is unfinished
/// when it goes is cancelled, so no way out of a session leaves work behind.
class Generation {
public:
    using Take = std::function<void(std::size_t prompt, OutputEvent event)>;

    Generation(Gateway& gateway, Strand strand, Take take);
    ~Generation();
    Generation(const Generation&) = delete;
    Generation& operator=(const Generation&) = delete;

    void start(std::vector<GenerationRequest> prompts);
    /// Asks the house to stop; the last events still come.
    void cancel();

private:
    struct Part {
        RequestId id{};
        std::shared_ptr<TokenStream> stream;
        bool is_finished = false;
    };

    void take(std::size_t prompt, OutputEvent event);

    Gateway& gateway_;
    Strand strand_;
    Take take_;
    std::vector<Part> parts_;
    bool is_cancelled_ = false;
};

}  // namespace attune
