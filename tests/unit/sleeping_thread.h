/* A second thread, so that the program has a purger and is not alone. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_SLEEPING_THREAD_H
#define HAKMEM_TESTS_SLEEPING_THREAD_H

#include <future>
#include <mutex>
#include <thread>

/* It works, after which the constructor returns, and sleeps until the destructor. */
class SleepingThread {
  public:
    template <class Work> explicit SleepingThread(Work work) {
        thread_ = std::thread([this, work] {
            work();
            begun_.set_value();
            std::lock_guard<std::mutex> wait(end_);
        });
        begun_.get_future().wait();
    }
    ~SleepingThread() {
        asleep_.unlock();
        thread_.join();
    }
    SleepingThread(const SleepingThread &) = delete;
    SleepingThread &operator=(const SleepingThread &) = delete;

  private:
    std::mutex end_;
    std::unique_lock<std::mutex> asleep_{end_};
    std::promise<void> begun_;
    std::thread thread_;
};

#endif
