#include "actors/module_files.hpp"

#include "actors/names.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <exception>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

namespace attune {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uintmax_t kManifestBytes = 1u << 20;
constexpr int kEntriesLooked = 4096;  // a folder with more is no module

Error missing() { return make_error(Errc::not_found, "no module was found at that path", "lora_path"); }

bool is_below(const fs::path& path, const fs::path& root) {
    const auto [end, unused] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
    return end == root.end();
}

class Disk {
public:
    Disk(const Settings& settings, ModelShape base, std::string base_id)
        : roots_(settings.modules.roots),
          trust_roots_(settings.modules.trust_manifests != "never"),
          trust_orders_(settings.modules.trust_manifests == "always"),
          base_(std::move(base)),
          base_id_(std::move(base_id)) {
        limits_.max_rank = settings.modules.max_rank;
        limits_.package_bytes = settings.limits.package_bytes;
        limits_.package_files = settings.limits.package_files;
        limits_.allow_unverified_base = settings.modules.allow_unverified_base;
    }

    ScanResult scan() const {
        ScanResult result;
        std::set<std::string> taken;
        int number = 0;
        for (const fs::path& root : roots_) {
            ++number;
            std::error_code error;
            std::vector<fs::path> entries;
            for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error))
                entries.push_back(it->path());
            if (error) result.refused.push_back("module root " + std::to_string(number) + " cannot be read");
            std::sort(entries.begin(), entries.end());
            for (const fs::path& entry : entries) look_at(entry, number, taken, result);
        }
        return result;
    }

    Result<FoundModule> resolve(const std::string& name, const std::string& given) const {
        if (given.empty() || given.find("://") != std::string::npos || given.find('\0') != std::string::npos ||
            given.starts_with("\\\\"))
            return missing();
        const fs::path path(given);
        std::vector<fs::path> candidates;
        if (path.is_absolute())
            candidates.push_back(path);
        else
            for (const fs::path& root : roots_) candidates.push_back(root / path);
        for (const fs::path& candidate : candidates) {
            auto canonical = contained(candidate);
            if (!canonical || !looks_like_module(*canonical)) continue;
            return inspected(name, *canonical, trust_orders_);
        }
        return missing();
    }

    Result<ModulePtr> load(const std::string& name, const fs::path& path) const {
        // Looked at again: a link may have been turned since the name was made.
        auto canonical = contained(path);
        if (!canonical) return missing();
        return load_module(name, *canonical, base_, limits_);
    }

private:
    /// The canonical path, if it and every link inside it stay below a root.
    std::optional<fs::path> contained(const fs::path& path) const {
        auto canonical = below_a_root(path);
        if (!canonical) return std::nullopt;
        std::error_code error;
        if (!fs::is_directory(*canonical, error)) return canonical;
        int seen = 0;
        for (fs::recursive_directory_iterator it(*canonical, error), end; !error && it != end; it.increment(error)) {
            if (++seen > kEntriesLooked) return std::nullopt;
            if (it->is_symlink(error) && !below_a_root(it->path())) return std::nullopt;
        }
        if (error) return std::nullopt;
        return canonical;
    }

    std::optional<fs::path> below_a_root(const fs::path& path) const {
        std::error_code error;
        const fs::path canonical = fs::canonical(path, error);
        if (error) return std::nullopt;
        for (const fs::path& root : roots_) {
            const fs::path real_root = fs::canonical(root, error);
            if (!error && canonical != real_root && is_below(canonical, real_root)) return canonical;
        }
        return std::nullopt;
    }

    static bool looks_like_module(const fs::path& path) {
        std::error_code error;
        if (fs::is_directory(path, error))
            return fs::exists(path / "adapter_config.json", error) || fs::exists(path / "module_config.json", error);
        const std::string extension = path.extension().string();
        return fs::is_regular_file(path, error) && (extension == ".gguf" || extension == ".attune");
    }

    void look_at(const fs::path& entry, int root, std::set<std::string>& taken, ScanResult& result) const {
        if (!looks_like_module(entry)) return;
        std::error_code error;
        const bool folder = fs::is_directory(entry, error);
        const std::string name = folder ? entry.filename().string() : entry.stem().string();
        const auto refuse = [&](const std::string& why) {
            result.refused.push_back("module `" + name + "` of root " + std::to_string(root) + ": " + why);
        };
        if (auto valid = check_module_name(name, base_id_); !valid) return refuse(valid.error().message);
        if (!taken.insert(name).second) return refuse("the name is already taken by an earlier root");
        auto canonical = contained(entry);
        if (!canonical) {
            FoundModule found{
                name, entry, make_error(Errc::invalid_module, "a link in it leaves the module roots"), {}};
            result.modules.push_back(std::move(found));
            return;
        }
        result.modules.push_back(inspected(name, *canonical, trust_roots_));
    }

    FoundModule inspected(const std::string& name, const fs::path& path, bool trusted) const {
        FoundModule found{name, path, inspect_module(path, base_, limits_), {}};
        if (!trusted) return found;
        auto manifest = read_manifest(name, path);
        if (manifest)
            found.manifest = std::move(*manifest);
        else if (found.header)
            found.header = manifest.error();
        return found;
    }

    static Result<ServingManifest> read_manifest(const std::string& name, const fs::path& path) {
        const fs::path file = path / "module_config.json";
        std::error_code error;
        if (!fs::is_regular_file(file, error)) return ServingManifest{};
        if (fs::file_size(file, error) > kManifestBytes || error)
            return make_error(Errc::invalid_module, "module_config.json is too large");
        std::ifstream in(file, std::ios::binary);
        std::stringstream text;
        text << in.rdbuf();
        const json manifest = json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
        if (!manifest.is_object()) return make_error(Errc::invalid_module, "module_config.json is not a JSON object");
        try {
            return serving_of(name, manifest);
        } catch (const json::exception&) {
            return make_error(Errc::invalid_module,
                              "module_config.json: a value under `serving` or `routing` has the wrong type");
        }
    }

    static Result<ServingManifest> serving_of(const std::string& name, const json& manifest) {
        ServingManifest out;
        const json serving = manifest.value("serving", json::object());
        out.pin = serving.value("pin", false);
        out.owner = serving.value("owner", std::string());
        if (serving.contains("cold")) {
            const std::string word = serving.at("cold").get<std::string>();
            if (word == "wait")
                out.cold = ColdPolicy::wait;
            else if (word == "fallback")
                out.cold = ColdPolicy::fallback;
            else if (word == "upgrade")
                out.cold = ColdPolicy::upgrade;
            else if (word == "revise")
                out.cold = ColdPolicy::revise;
            else
                return make_error(Errc::invalid_module, "module_config.json: serving.cold is not a cold policy");
        }
        if (!manifest.contains("routing")) return out;
        const json routing = manifest.at("routing");
        RouteRule rule;
        rule.modules = {WeightedModule{name, 1.0}};
        rule.task_ids = routing.value("task_ids", std::vector<std::string>{});
        rule.tags = routing.value("tags", std::vector<std::string>{});
        rule.keywords = routing.value("keywords", std::vector<std::string>{});
        rule.priority = routing.value("priority", 0);
        if (rule.priority < -100 || rule.priority > 100)
            return make_error(Errc::invalid_module, "module_config.json: routing.priority is -100 to 100");
        rule.owner = out.owner;
        out.rule = std::move(rule);
        return out;
    }

    std::vector<fs::path> roots_;
    bool trust_roots_;
    bool trust_orders_;
    ModelShape base_;
    std::string base_id_;
    ModuleLimits limits_;
};

}  // namespace

ModuleFiles module_files(const Settings& settings, const ModelShape& base, const std::string& base_id) {
    auto disk = std::make_shared<const Disk>(settings, base, base_id);
    return ModuleFiles{
        [disk] { return disk->scan(); },
        [disk](const std::string& name, const std::string& path) { return disk->resolve(name, path); },
        [disk](const std::string& name, const fs::path& path) { return disk->load(name, path); },
    };
}

LoaderDonePtr run_task(const ModuleFiles& files, const LoaderTask& task) {
    auto done = std::make_shared<LoaderDone>();
    const Error fault = make_error(Errc::internal, "loading met an unforeseen fault");
    try {
        switch (task.kind) {
            case LoaderTask::Kind::scan:
                done->scan = files.scan();
                break;
            case LoaderTask::Kind::resolve:
                done->found = fault;
                done->found = files.resolve(task.name, task.path);
                break;
            case LoaderTask::Kind::load:
                done->module = fault;
                done->module = files.load(task.name, task.path);
                if (*done->module && !**done->module) done->module = fault;
                break;
        }
    } catch (const std::bad_alloc&) {
        const Error memory = make_error(Errc::no_room, "there was not enough memory to load it");
        if (task.kind == LoaderTask::Kind::resolve) done->found = memory;
        if (task.kind == LoaderTask::Kind::load) done->module = memory;
    } catch (...) {
        if (task.kind == LoaderTask::Kind::scan) done->scan.refused.emplace_back("looking at the roots failed");
    }
    return done;
}

}  // namespace attune
