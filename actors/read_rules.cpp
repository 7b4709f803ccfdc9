// New routing rules on their way into the house: the part that may wait for a disk.

#include "actors/prepare.hpp"

#include <exception>
#include <utility>

namespace attune {
namespace {

/// `name`: what errors call the rules.
Result<RouteSetPtr> compiled(Result<RouteFile> file, const std::string& name) {
    if (!file) return file.error();
    auto words = compile_routes(*file);
    if (!words) return make_error(words.error().code, name + ": " + words.error().message);
    return RouteSetPtr(std::make_shared<const RouteSet>(RouteSet{std::move(*file), std::move(*words)}));
}

template <class Read>
RoutesNewsPtr guarded(RoutesNews news, Read&& read) {
    try {
        news.rules = read(news);
    } catch (const std::exception&) {
        news.rules = make_error(Errc::internal, "reading the routing rules met an unforeseen fault");
    }
    return std::make_shared<const RoutesNews>(std::move(news));
}

}  // namespace

RoutesNewsPtr read_rules(const RouteSource& source, const RouteSetPtr& last_read) {
    return guarded(RoutesNews{}, [&](RoutesNews& news) -> Result<RouteSetPtr> {
        const auto stamp = [&](const RouteFile& file) { return source.stamp ? source.stamp(file) : std::string(); };
        news.stamp = stamp(last_read ? last_read->file : RouteFile{});
        auto file = source.read();
        if (!file) return file.error();
        // Rules that name another classifier have another stamp, and what is taken must be read after its stamp.
        if (std::string own = stamp(*file); own != news.stamp) {
            news.stamp = std::move(own);
            file = source.read();
        }
        return compiled(std::move(file), source.name);
    });
}

RoutesNewsPtr look_for_rules(const RouteSource& source, const RoutesTask& task) {
    if (task.json) {
        RoutesNews news;
        news.from_file = false;
        return guarded(std::move(news), [&](RoutesNews&) -> Result<RouteSetPtr> {
            if (!source.parse) return make_error(Errc::unsupported, "this server takes no rules over HTTP");
            return compiled(source.parse(*task.json), "routes");
        });
    }
    if (source.stamp(task.last_read ? task.last_read->file : RouteFile{}) != task.stamp)
        return read_rules(source, task.last_read);
    RoutesNews same;
    same.changed = false;
    return std::make_shared<const RoutesNews>(std::move(same));
}

}  // namespace attune
