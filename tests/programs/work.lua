-- Tables, strings, closures, coroutines and both collectors; prints sums of the results.
-- SPDX-License-Identifier: MIT
local state = 42
local function random(limit)
    state = (state * 1103515245 + 12345) & 0x7fffffff
    return (state >> 8) % limit
end

local function digest(text)
    local sum = 0xcbf29ce484222325
    for i = 1, #text do
        sum = (sum ~ text:byte(i)) * 1099511628211
    end
    return string.format("%016x", sum)
end

for _, mode in ipairs { "incremental", "generational" } do
    collectgarbage(mode)
    local tables, live = {}, 0
    for i = 1, 400000 do
        local slot = random(20000)
        if tables[slot] then
            tables[slot], live = nil, live - 1
        else
            tables[slot], live = { i, name = "n" .. i, next = { i } }, live + 1
        end
    end
    print(mode, live)
    local parts = {}
    for i = 1, 60000 do
        parts[#parts + 1] = string.rep(string.char(97 + random(26)), random(60))
    end
    local text = table.concat(parts, " ")
    print(#text, digest((text:gsub("a+", "<%0>"))))
    table.sort(parts)
    print(digest(table.concat(parts)))
end

local producers = {}
for i = 1, 3000 do
    producers[i] = coroutine.wrap(function()
        for j = 1, 20 do
            coroutine.yield(string.rep("y", j) .. i)
        end
    end)
end
local length = 0
for j = 1, 20 do
    for i = 1, #producers do
        length = length + #producers[i]()
    end
end
print(length)
local big = string.rep("0123456789", 1000000)
print(#big, #(big .. big:reverse()), select(2, big:gsub("89", "")))
