# HAKMEM for Homebrew on Linux, from the tarball of a release beside this file: ./hak release fills in the two values in @.
# SPDX-License-Identifier: MIT
class Hakmem < Formula
  desc "Fast, small and checked malloc that can say where every byte is"
  homepage "https://github.com/hakmem/hakmem"
  url "file://#{__dir__}/hakmem-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license "MIT"

  depends_on "cmake" => :build
  depends_on "rust" => :build
  depends_on :linux

  def install
    host = Utils.safe_popen_read("rustc", "-vV")[/^host: (.*)/, 1]
    cd "cli" do
      system "cargo", "build", "--release", "--locked", "--target", host
    end
    system "cmake", "-S", ".", "-B", "out", "-DHAKMEM_WERROR=OFF",
           "-DHAKMEM_COMMAND=#{buildpath}/cli/target/#{host}/release/hakmem", *std_cmake_args
    system "cmake", "--build", "out"
    system "cmake", "--install", "out"
  end

  test do
    (testpath/"test.c").write <<~C
      #include <hakmem.h>
      int main(void) { return hak_usable_size(hak_malloc(100)) < 100; }
    C
    system ENV.cc, "test.c", "-I#{include}", "-L#{lib}", "-lhakmem", "-Wl,-rpath,#{lib}", "-o", "test"
    system "./test"
    assert_match version.to_s, shell_output("#{bin}/hakmem --version")
  end
end
