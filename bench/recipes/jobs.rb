# Background jobs, as Sidekiq runs them: a queue, and threads that take a job, build strings and hashes of very different
# sizes, make JSON of them and forget them. Then the queue is empty.
# SPDX-License-Identifier: MIT
require "json"

THREADS, JOBS, REST_S = 10, 400, 0.7

def job(number)
  random = Random.new(number)
  rows = Array.new(20 + random.rand(number % 50 == 0 ? 6000 : 300)) do |row|
    { "id" => row, "name" => "user #{row}" * (1 + random.rand(4)), "text" => "x" * random.rand(600), "on" => row.odd? }
  end
  text = JSON.generate(rows)
  parsed = JSON.parse(text)
  parsed.select { |row| row["on"] }.sum { |row| row["text"].size } + text.size
end

queue, sums = Queue.new, Queue.new
JOBS.times { |number| queue << number }
threads = Array.new(THREADS) do
  Thread.new do
    while (number = queue.pop(true) rescue nil)
      sums << job(number)
    end
  end
end
threads.each(&:join)
sleep REST_S
puts "#{sums.size} jobs, #{Array.new(sums.size) { sums.pop }.sum} bytes"
