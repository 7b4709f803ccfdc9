#include "actors/module_files.hpp"

#include "actors/load_pace.hpp"
#include "actors/module_template.hpp"
#include "actors/names.hpp"

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

namespace attune {
namespace {

namespace fs = std::filesystem;

Error missing() { return make_error(Errc::not_found, "no module was found at that path", "lora_path"); }

bool is_below(const fs::path& path, const fs::path& root) {
    const auto [end, unused] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
    return end == root.end();
}

class Disk {
public:
    Disk(const Settings& settings, ModelShape base, std::string base_id,
         const std::shared_ptr<const Tokenizer>& tokenizer, std::shared_ptr<const BaseValues> base_values,
         std::function<bool()> is_busy)
        : roots_(settings.modules.roots),
          trust_roots_(settings.modules.trust_manifests != "never"),
          trust_orders_(settings.modules.trust_manifests == "always"),
          base_(std::move(base)),
          base_id_(std::move(base_id)),
          limits_(module_limits(settings)) {
        limits_.roots = roots_;
        limits_.make_template = template_maker(tokenizer);
        limits_.make_tokenizer = tokenizer_maker(tokenizer);
        limits_.base_values = std::move(base_values);
        if (!is_busy) return;
        // Half of the time a load may take is left for its work.
        const auto most_rest = std::chrono::duration_cast<LoadPace::Duration>(
            std::chrono::duration<double>(settings.modules.load_timeout_s / 2));
        limits_.make_pace = [is_busy = std::move(is_busy), most_rest] { return LoadPace(is_busy, most_rest); };
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
            auto canonical = below_a_root(candidate);
            if (!canonical || !looks_like_module(*canonical)) continue;
            return inspected(name, *canonical, trust_orders_);
        }
        return missing();
    }

    Result<ModulePtr> load(const std::string& name, const fs::path& path) const {
        // Looked at again: a link may have been turned since the name was made.
        auto canonical = below_a_root(path);
        if (!canonical) return missing();
        return load_module(name, *canonical, base_, limits_);
    }

private:
    /// The canonical path, if it lies below a root; inspect_module and load_module look at the links inside.
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
        std::string name = fs::is_directory(entry, error) ? entry.filename().string() : entry.stem().string();
        const auto refuse = [&](const std::string& why) {
            result.refused.push_back("module `" + name + "` of root " + std::to_string(root) + ": " + why);
        };
        auto canonical = below_a_root(entry);
        if (!canonical) return refuse("its link leaves the module roots");
        FoundModule found = inspected(name, *canonical, trust_roots_);
        // A package says its own name, a plain folder or file has the one it lies under.
        if (found.header && !found.header->name.empty()) {
            name = found.name = found.header->name;
            if (found.manifest.rule) found.manifest.rule->modules = {WeightedModule{name, 1.0}};
        }
        if (auto valid = check_module_name(name, base_id_); !valid) return refuse(valid.error().message);
        if (!taken.insert(name).second) return refuse("the name is already taken");
        result.modules.push_back(std::move(found));
    }

    FoundModule inspected(const std::string& name, const fs::path& path, bool trusted) const {
        FoundModule found{name, path, inspect_module(path, base_, limits_), {}};
        if (!found.header || !trusted) return found;
        found.manifest = ServingManifest{found.header->cold, found.header->pin, found.header->owner, {}};
        if (found.header->routing) {
            // The rule speaks of the module under the name it has here.
            found.manifest.rule = found.header->routing;
            found.manifest.rule->modules = {WeightedModule{name, 1.0}};
            found.manifest.rule->owner = found.header->owner;
        }
        return found;
    }

    std::vector<fs::path> roots_;
    bool trust_roots_;
    bool trust_orders_;
    ModelShape base_;
    std::string base_id_;
    ModuleLimits limits_;
};

}  // namespace

ModuleFiles module_files(const Settings& settings, const ModelShape& base, const std::string& base_id,
                         std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<const BaseValues> base_values,
                         std::function<bool()> is_busy) {
    auto disk =
        std::make_shared<const Disk>(settings, base, base_id, tokenizer, std::move(base_values), std::move(is_busy));
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
