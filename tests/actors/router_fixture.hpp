#pragma once

#include "house_fixture.hpp"

#include <catch2/catch.hpp>

namespace attune {

class RouterFixture : public HouseFixture {
public:
    RouterFixture() {
        disk["root/a"] = FakeSource{"gen-a"};
        disk["root/b"] = FakeSource{"gen-b"};
    }
    GenerationRequest with_policy(ColdPolicy policy, int max_tokens = 4) {
        GenerationRequest wish = request("a", max_tokens);
        wish.cold = policy;
        return wish;
    }
    void check_idle() {
        run();
        CHECK(cache().leases.empty());
        CHECK(engine->running() == 0);
        CHECK(engine->broken_rules.empty());
        CHECK(metrics().find("vllm:num_requests_waiting{engine=\"0\",model_name=\"base\"} 0") != std::string::npos);
    }
};

}  // namespace attune
