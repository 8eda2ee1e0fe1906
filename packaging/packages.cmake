# The packages that cpack builds from the components of cmake/install.cmake: packaging/packages.sh runs it.
# SPDX-License-Identifier: MIT
set(HAKMEM_MAINTAINER "HAKMEM <hakmem@localhost.localdomain>" CACHE STRING "who maintains the packages")
set(CPACK_PACKAGE_NAME hakmem)
set(CPACK_PACKAGE_VENDOR "The HAKMEM authors")
set(CPACK_PACKAGE_HOMEPAGE_URL "${PROJECT_HOMEPAGE_URL}")
set(CPACK_PACKAGE_CONTACT "${HAKMEM_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL runtime development tools)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENT_DEVELOPMENT_DEPENDS runtime)
set(CPACK_COMPONENT_TOOLS_DEPENDS runtime)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # or cpack puts it before each component's own
set(about "HAKMEM replaces malloc in programs as they are, preloaded or linked. It aims
to be first in time and in resident memory, checks what it is given to free,
and can say where every resident byte of the heap is.
")

# describe COMPONENT SUMMARY SENTENCE
function(describe component summary sentence)
  set(CPACK_COMPONENT_${component}_DESCRIPTION "${summary}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${component}_DESCRIPTION "${summary}\n${about}.\n${sentence}" PARENT_SCOPE)
  set(CPACK_RPM_${component}_PACKAGE_SUMMARY "${summary}" PARENT_SCOPE)
  set(CPACK_RPM_${component}_PACKAGE_DESCRIPTION "${about}\n${sentence}" PARENT_SCOPE)
endfunction()
describe(RUNTIME "malloc that is fast, small and checked: shared library"
         "This package has the library: LD_PRELOAD=libhakmem.so.0 PROGRAM")
describe(DEVELOPMENT "malloc that is fast, small and checked: development files"
         "This package has what programs are compiled and linked with.")
describe(TOOLS "memory inspection of running programs"
         "This package has the command hakmem, which says where memory is.")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libhakmem0)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/debian/triggers)
set(CPACK_DEBIAN_RUNTIME_DEBUGINFO_PACKAGE ON)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libhakmem-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME hakmem-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION devel)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian/prepare.cmake)

set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE MIT)
set(CPACK_RPM_SPEC_MORE_DEFINE "%define _build_id_links none
%define _buildhost localhost
%define use_source_date_epoch_as_buildtime 1")
foreach(shared IN ITEMS lib64/cmake lib64/pkgconfig share/licenses share/man share/man/man1 share/bash-completion
        share/bash-completion/completions share/fish share/fish/vendor_completions.d share/zsh share/zsh/site-functions)
  list(APPEND CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/${shared})
endforeach()
set(CPACK_RPM_RUNTIME_PACKAGE_NAME libhakmem0)
set(CPACK_RPM_DEVELOPMENT_PACKAGE_NAME hakmem-devel)
set(CPACK_RPM_TOOLS_PACKAGE_NAME hakmem-tools)
set(CPACK_RPM_DEVELOPMENT_PACKAGE_REQUIRES "libhakmem0 = ${PROJECT_VERSION}")
set(CPACK_RPM_TOOLS_PACKAGE_REQUIRES "libhakmem0 = ${PROJECT_VERSION}")
include(CPack)
