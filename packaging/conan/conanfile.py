"""The library for Conan 2, from these sources: conan create packaging/conan"""
# SPDX-License-Identifier: MIT
import pathlib
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, rm


class Hakmem(ConanFile):
    name = "hakmem"
    description = "malloc that is fast, small and checked"
    license = "MIT"
    author = "The HAKMEM authors"
    url = homepage = "https://github.com/hakmem/hakmem"
    topics = ("malloc", "allocator")
    package_type = "library"
    settings = "os", "compiler", "build_type", "arch"
    options = {"shared": [True, False], "override": [True, False]}
    default_options = {"shared": True, "override": True}

    def root(self):
        return pathlib.Path(self.recipe_folder).parents[1]

    def set_version(self):
        text = (self.root() / "CMakeLists.txt").read_text()
        self.version = re.search(r"^project\(hakmem VERSION ([0-9.]+)", text, re.MULTILINE)[1]

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "THIRD_PARTY.md", "cmake/*", "include/*", "src/*", "docs/*.py",
                        "docs/*.gdb",
                        "packaging/packages.cmake", "cli/assets/grafana.json"):
            copy(self, pattern, self.root(), self.export_sources_folder)

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("HAKMEM is for Linux")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["HAKMEM_OVERRIDE"] = bool(self.options.override)
        toolchain.cache_variables["HAKMEM_WERROR"] = False
        toolchain.cache_variables["HAKMEM_COMMAND"] = "none"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        rm(self, "*.a" if self.options.shared else "*.so*", pathlib.Path(self.package_folder) / "lib")
        copy(self, "LICENSE", self.source_folder, pathlib.Path(self.package_folder) / "licenses")

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "hakmem")
        self.cpp_info.set_property("cmake_target_name", "hakmem::hakmem")
        self.cpp_info.set_property("pkg_config_name", "hakmem")
        self.cpp_info.libs = ["hakmem"]
        self.cpp_info.system_libs = ["pthread"]
        if not self.options.shared:
            self.cpp_info.exelinkflags = ["-Wl,--eh-frame-hdr"]
