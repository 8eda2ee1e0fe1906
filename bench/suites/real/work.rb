# Objects, strings, hashes, symbols and regular expressions; prints digests of the results.
# SPDX-License-Identifier: MIT
require 'digest'
require 'json'

Order = Struct.new(:number, :customer, :lines)
random = Random.new(1)
live = {}
totals = Hash.new { |hash, key| hash[key] = [] }
60_000.times do |number|
  order = Order.new(number, "customer #{random.rand(500)}", Array.new(random.rand(1..8)) { random.rand(1000) })
  live[number] = order
  totals[order.customer] << order.lines.sum
  live.delete(random.rand(number + 1)) if live.size > 5_000
end
puts Digest::SHA256.hexdigest(totals.sort.inspect)

3.times do |round|
  text = JSON.generate(live.values.map(&:to_h))
  parsed = JSON.parse(text, symbolize_names: true)
  parsed.sort_by! { |entry| [entry[:customer], -entry[:number]] }
  words = text.scan(/\d{2,}/).tally
  changed = text.gsub(/customer (\d+)/) { "client #{$1.to_i * round}" }
  puts Digest::SHA256.hexdigest(parsed.first(100).inspect + words.sort.inspect + changed)
end

tree = ->(depth) { depth.zero? ? [depth.to_s] : [tree.(depth - 1), depth.to_s * depth, tree.(depth - 1)] }
puts Digest::SHA256.hexdigest(tree.(14).flatten.join)
lines = Array.new(20_000) { |n| "#{n}:" + 'x' * random.rand(200) }
puts Digest::SHA256.hexdigest(lines.each_slice(7).map { |slice| slice.join(',').upcase.sub(/X+/, 'y') }.sort.join)
