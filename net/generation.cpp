#include "net/generation.hpp"

namespace attune {

Generation::Generation(Gateway& gateway, Strand strand, Take take)
    : gateway_(gateway), strand_(std::move(strand)), take_(std::move(take)) {}

Generation::~Generation() {
    cancel();
    for (const auto& part : parts_) part.stream->close();
}

void Generation::start(std::vector<GenerationRequest> prompts) {
    parts_.resize(prompts.size());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        parts_[i].id = gateway_.next_id();
        parts_[i].stream = TokenStream::open(strand_, [this, i](OutputEvent event) { take(i, std::move(event)); });
        prompts[i].id = parts_[i].id;
        gateway_.submit(std::move(prompts[i]), parts_[i].stream);
    }
}

void Generation::cancel() {
    if (is_cancelled_) return;
    is_cancelled_ = true;
    for (const auto& part : parts_)
        if (!part.is_finished) gateway_.cancel(part.id);
}

void Generation::take(std::size_t prompt, OutputEvent event) {
    if (std::holds_alternative<Finished>(event) || std::holds_alternative<Failed>(event))
        parts_[prompt].is_finished = true;
    take_(prompt, std::move(event));
}

}  // namespace attune
