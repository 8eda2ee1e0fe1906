#!/usr/bin/env python3
"""Prints the bill of materials as SPDX 2.3 JSON: sbom.py VERSION COMMIT SECONDS (of the commit, since 1970).

 1. The library contains its own sources and one third-party header (THIRD_PARTY.md).
 2. The command is linked statically with crates: cargo names those that are compiled into it on this platform, with
 their
    licences; cli/Cargo.lock has the checksums of their packages."""
# SPDX-License-Identifier: MIT
import datetime
import json
import pathlib
import subprocess
import sys
import tomllib

CLI = pathlib.Path(__file__).resolve().parent.parent / "cli"


def crates():
    """The crates in the command, without tests' and build scripts' own, each once."""
    host = next(line.split()[1] for line in subprocess.check_output(["rustc", "-vV"], text=True).splitlines()
                if line.startswith("host: "))
    data = json.loads(subprocess.check_output(
        ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", host], cwd=CLI))
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    found, waiting = {}, [data["resolve"]["root"]]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = packages[name]
        waiting += [dependency["pkg"] for dependency in nodes[name]["deps"]
                    if any(kind["kind"] is None for kind in dependency["dep_kinds"])]
    return sorted((package for package in found.values() if package["source"]),
                  key=lambda one: (one["name"], one["version"]))


def package(name, version, licence, **more):
    return {"SPDXID": f"SPDXRef-{name}-{version}".replace("_", "-").replace("+", "-"), "name": name,
            "versionInfo": version,
            "licenseDeclared": licence, "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION",
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False, **more}


def crate(one, checksums):
    name, version = one["name"], one["version"]
    return package(
        name, version, " ".join((one["license"] or "NOASSERTION").replace("/", " OR ").split()),
        downloadLocation=f"https://crates.io/api/v1/crates/{name}/{version}/download",
        checksums=[{"algorithm": "SHA256", "checksumValue": checksums[name, version]}],
        externalRefs=[{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                       "referenceLocator": f"pkg:cargo/{name}@{version}"}])


def main():
    version, commit, seconds = sys.argv[1:]
    lock = tomllib.loads((CLI / "Cargo.lock").read_text())["package"]
    checksums = {(one["name"], one["version"]): one.get("checksum") for one in lock}
    library = package("libhakmem", version, "MIT")
    command = package("hakmem", version, "MIT")
    sdt = package("systemtap-sdt", "header", "CC0-1.0")
    del sdt["versionInfo"] # the header does not name one
    linked = [crate(one, checksums) for one in crates()]
    created = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc)
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"hakmem-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/hakmem-{version}-{commit}",
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Organization: The HAKMEM authors"]},
        "packages": [library, command, sdt, *linked],
        "relationships": [
            {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": related}
            for element, kind, related in [
                ("SPDXRef-DOCUMENT", "DESCRIBES", library["SPDXID"]),
                ("SPDXRef-DOCUMENT", "DESCRIBES", command["SPDXID"]),
                (library["SPDXID"], "CONTAINS", sdt["SPDXID"]),
                *((command["SPDXID"], "STATIC_LINK", one["SPDXID"]) for one in linked)]],
    }
    print(json.dumps(document, indent=1))


main()
