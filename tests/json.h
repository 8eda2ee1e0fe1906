/* A strict JSON reader, enough to check what the library writes: objects, arrays, strings, numbers, true, false, null;
 * nothing may follow the value. Throws std::runtime_error with the offset of the first error. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_JSON_H
#define HAKMEM_TESTS_JSON_H

#include <ctype.h>
#include <stdlib.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

struct Json {
    enum Kind { kNull, kBool, kNumber, kString, kArray, kObject } kind = kNull;
    double number = 0;
    std::string text; /* a string's value, or a number as written */
    std::vector<Json> items;
    std::vector<std::pair<std::string, Json>> members;

    bool has(const std::string &name) const { return find(name) != nullptr; }
    const Json &operator[](const std::string &name) const {
        const Json *found = find(name);
        if (found == nullptr)
            throw std::runtime_error("JSON: no member \"" + name + "\"");
        return *found;
    }
    const Json *find(const std::string &name) const {
        for (auto &member : members)
            if (member.first == name)
                return &member.second;
        return nullptr;
    }
};

class JsonReader {
  public:
    static Json read(const std::string &text) {
        JsonReader reader(text);
        Json value = reader.value();
        reader.space();
        if (reader.at_ != text.size())
            reader.wrong("text after the value");
        return value;
    }

  private:
    explicit JsonReader(const std::string &text) : text_(text) {}

    [[noreturn]] void wrong(const std::string &what) {
        throw std::runtime_error("JSON: " + what + " at offset " + std::to_string(at_) + ": \"" +
                                 text_.substr(at_, 40) + "\"");
    }
    char peek() { return at_ < text_.size() ? text_[at_] : '\0'; }
    void space() {
        while (peek() == ' ' || peek() == '\n' || peek() == '\t' || peek() == '\r')
            at_++;
    }
    void expect(char c) {
        space();
        if (peek() != c)
            wrong(std::string("expected '") + c + "'");
        at_++;
    }
    bool word(const char *word) {
        if (text_.compare(at_, std::string(word).size(), word) != 0)
            return false;
        at_ += std::string(word).size();
        return true;
    }

    Json value() {
        space();
        Json json;
        if (peek() == '{')
            return object();
        if (peek() == '[')
            return array();
        if (peek() == '"') {
            json.kind = Json::kString;
            json.text = string();
        } else if (word("true") || word("false")) {
            json.kind = Json::kBool;
            json.number = text_[at_ - 2] == 'u';
        } else if (!word("null")) {
            return number();
        }
        return json;
    }

    Json object() {
        Json json;
        json.kind = Json::kObject;
        expect('{');
        space();
        if (peek() == '}')
            return at_++, json;
        do {
            space();
            std::string name = string();
            if (json.has(name))
                wrong("member \"" + name + "\" occurs twice");
            expect(':');
            json.members.emplace_back(name, value());
            space();
        } while (peek() == ',' && at_++ < text_.size());
        expect('}');
        return json;
    }

    Json array() {
        Json json;
        json.kind = Json::kArray;
        expect('[');
        space();
        if (peek() == ']')
            return at_++, json;
        do {
            json.items.push_back(value());
            space();
        } while (peek() == ',' && at_++ < text_.size());
        expect(']');
        return json;
    }

    std::string string() {
        if (peek() != '"')
            wrong("expected a string");
        std::string out;
        for (at_++; peek() != '"'; at_++) {
            if (at_ >= text_.size() || static_cast<unsigned char>(peek()) < 0x20)
                wrong("string not closed");
            if (peek() == '\\') {
                at_++;
                if (peek() == 'u')
                    for (int i = 0; i < 4; i++)
                        if (!isxdigit(static_cast<unsigned char>(text_.at(++at_))))
                            wrong("bad \\u");
                if (std::string("\"\\/bfnrtu").find(text_[at_]) == std::string::npos && !isxdigit(text_[at_]))
                    wrong("bad escape");
            }
            out += peek();
        }
        at_++;
        return out;
    }

    void digits() {
        if (!isdigit(static_cast<unsigned char>(peek())))
            wrong("expected a digit");
        while (isdigit(static_cast<unsigned char>(peek())))
            at_++;
    }
    Json number() {
        size_t from = at_;
        if (peek() == '-')
            at_++;
        if (peek() == '0' && isdigit(static_cast<unsigned char>(at_ + 1 < text_.size() ? text_[at_ + 1] : ' ')))
            wrong("leading zero");
        digits();
        if (peek() == '.')
            at_++, digits();
        if (peek() == 'e' || peek() == 'E') {
            at_++;
            if (peek() == '+' || peek() == '-')
                at_++;
            digits();
        }
        Json json;
        json.kind = Json::kNumber;
        json.text = text_.substr(from, at_ - from);
        json.number = strtod(json.text.c_str(), nullptr);
        return json;
    }

    const std::string &text_;
    size_t at_ = 0;
};

#endif
