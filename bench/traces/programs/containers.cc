/* SPDX-License-Identifier: MIT */
// Standard containers of each other, and a chain of templates: what a compiler meets every day, in little space.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

template <int N> struct chain {
    std::map<int, std::vector<std::string>> held;
    std::unordered_map<std::string, std::tuple<int, double, std::array<char, N + 1>>> more;
    int walk(int key) {
        held[key].push_back(std::to_string(N));
        more.emplace(held[key].back(), std::make_tuple(N, 0.5, std::array<char, N + 1>{}));
        return chain<N - 1>().walk(key) + static_cast<int>(held.size() + more.size());
    }
};
template <> struct chain<0> {
    int walk(int key) { return key; }
};

int main() {
    std::vector<std::set<std::string>> sets = {{"b", "a"}, {"c"}};
    std::sort(sets.begin(), sets.end(), [](auto &a, auto &b) { return a.size() < b.size(); });
    auto held = std::make_shared<std::map<std::string, std::unique_ptr<int>>>();
    (*held)["word"] = std::make_unique<int>(1);
    return chain<8>().walk(3) + static_cast<int>(sets.size() + held->size());
}
