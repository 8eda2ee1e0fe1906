# What Debian's policy asks of each package: copyright, changelog, compressed manual pages, its own place for zsh, no
# debug information. cpack runs this for a .deb before it packs the components' directories; what it strips itself is
# the shared library, whose debug information becomes a package.
# SPDX-License-Identifier: MIT
if(NOT CPACK_GENERATOR STREQUAL DEB)
  return()
endif()
set(runtime libhakmem0)
set(development libhakmem-dev)
set(tools hakmem-tools)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(status)
    message(FATAL_ERROR "${ARGN}: ${status}")
  endif()
endfunction()

foreach(component runtime development tools)
  set(usr "${CPACK_TEMPORARY_DIRECTORY}/${component}/usr")
  set(doc "${usr}/share/doc/${${component}}")
  file(REMOVE_RECURSE "${usr}/share/licenses")
  file(COPY "${CMAKE_CURRENT_LIST_DIR}/copyright" DESTINATION "${doc}")
  configure_file("${CMAKE_CURRENT_LIST_DIR}/changelog.in" "${doc}/changelog" @ONLY)
  run(gzip -9nf "${doc}/changelog")
  set(overrides "${CMAKE_CURRENT_LIST_DIR}/${${component}}.lintian-overrides")
  if(EXISTS "${overrides}")
    file(MAKE_DIRECTORY "${usr}/share/lintian/overrides")
    configure_file("${overrides}" "${usr}/share/lintian/overrides/${${component}}" COPYONLY)
  endif()
endforeach()

# `usr` is now that of the tools.
file(GLOB pages "${usr}/share/man/man1/*.1")
run(gzip -9nf ${pages})
run(strip "${usr}/bin/hakmem")
file(RENAME "${usr}/share/zsh/site-functions" "${usr}/share/zsh/vendor-completions")
file(GLOB_RECURSE archive "${CPACK_TEMPORARY_DIRECTORY}/development/*.a")
run(strip -g -D "${archive}")
