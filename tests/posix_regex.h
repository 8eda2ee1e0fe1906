/* POSIX extended regular expressions. std::regex takes three seconds to compile in each test, and runs slowly without
 * optimisation. `.` matches any byte but a newline. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_POSIX_REGEX_H
#define HAKMEM_TESTS_POSIX_REGEX_H

#include <regex.h>

#include <stdexcept>
#include <string>

class Regex {
  public:
    explicit Regex(const std::string &pattern) {
        if (regcomp(&regex_, pattern.c_str(), REG_EXTENDED | REG_NEWLINE) != 0)
            throw std::invalid_argument("no regular expression: " + pattern);
    }
    Regex(const Regex &) = delete;
    Regex &operator=(const Regex &) = delete;
    ~Regex() { regfree(&regex_); }

    bool is_in(const std::string &text) const { return regexec(&regex_, text.c_str(), 0, nullptr, 0) == 0; }
    bool is_all_of(const std::string &text) const {
        regmatch_t place;
        return regexec(&regex_, text.c_str(), 1, &place, 0) == 0 && place.rm_so == 0 &&
               static_cast<size_t>(place.rm_eo) == text.size();
    }

  private:
    regex_t regex_;
};

#endif
