# The library and the command from these sources: nix-build packaging/nix
# SPDX-License-Identifier: MIT
{ pkgs ? import <nixpkgs> { } }:
let
  root = ../..;
  version = builtins.elemAt (builtins.match ".*project\\(hakmem VERSION ([0-9.]+).*" (builtins.readFile (root + "/CMakeLists.txt"))) 0;
  command = pkgs.pkgsStatic.rustPlatform.buildRustPackage {
    pname = "hakmem-command";
    inherit version;
    src = root;
    sourceRoot = "${baseNameOf root}/cli";
    cargoLock.lockFile = root + "/cli/Cargo.lock";
    doCheck = false; # the tests need the built library
  };
in
pkgs.stdenv.mkDerivation {
  pname = "hakmem";
  inherit version;
  src = root;
  nativeBuildInputs = [ pkgs.cmake pkgs.ninja ];
  cmakeFlags = [ "-DHAKMEM_WERROR=OFF" "-DHAKMEM_COMMAND=${command}/bin/hakmem" ];
  meta = {
    description = "malloc that is fast, small and checked";
    homepage = "https://github.com/hakmem/hakmem";
    license = pkgs.lib.licenses.mit;
    platforms = [ "x86_64-linux" "aarch64-linux" ];
    mainProgram = "hakmem";
  };
}
