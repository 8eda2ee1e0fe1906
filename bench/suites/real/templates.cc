/* SPDX-License-Identifier: MIT */
// Input for the compilers: deep and wide class templates, containers of strings, variants and closures.

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

template <int N, class... Ts> struct node : node<N - 1, Ts..., std::integral_constant<int, N>> {
    std::tuple<Ts...> items;
    virtual int value() const { return N + sizeof...(Ts); }
};

// clang-format off
template <class... Ts> struct node<0, Ts...> { virtual ~node() = default; };
// clang-format on

struct record {
    std::string name;
    std::vector<long> numbers;
    int key;
    bool operator<(const record &other) const { return key < other.key; }
};

int work(int count) {
    std::map<record, std::vector<std::string>> groups;
    std::vector<std::variant<int, std::string, record>> values;
    std::function<int(int)> next = [&](int x) { return x + static_cast<int>(groups.size()) * 3; };
    for (int i = 0; i < count; i++) {
        record one{"record", {i, i + 1}, next(i)};
        groups[one].push_back(std::to_string(i));
        values.emplace_back(one);
        values.emplace_back(std::to_string(i));
    }
    auto &first = groups.begin()->second;
    std::sort(first.begin(), first.end(), [](auto &a, auto &b) { return a.size() < b.size(); });
    std::stable_sort(values.begin(), values.end(), [](auto &a, auto &b) { return a.index() < b.index(); });
    auto deep = std::make_shared<node<36>>();
    return deep->value() + std::visit([](auto &x) { return static_cast<int>(sizeof x); }, values[0]);
}
