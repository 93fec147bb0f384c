#!/bin/sh
# Makes a page but for its title and its data: one file, with styles and scripts inside and a policy that names
# them by hash, so that nothing else can run.
#
#   assemble.sh PAGE.html FILE.css… FILE.js… > page.html
#
# The page has a line <!--gpuspy:NAME--> for each: policy, style and scripts, which stand in it in the order in which
# they are given. title and data stay for the program.
set -eu
export LC_ALL=C
page=$1
shift
styles='' scripts=''

die() { echo "page: $*" >&2; exit 1; }

# What ends the element early, or a browser reads as another character than its hash is of.
for f in "$page" "$@"; do
    case $f in
    */d3.min.js) [ -r "$f" ] || die "$f is not there; it is in Debian's package node-d3 (scripts/setup.sh build), or name d3.min.js with make D3=FILE" ;;
    esac
    [ -r "$f" ] || die "$f is not there"
    case $f in
    *.css) styles="$styles $f" ;;
    *.js) scripts="$scripts $f" ;;
    *) continue ;;
    esac
    if grep -qi -e '</script' -e '</style' -e '<!--' "$f"; then
        die "$f holds a tag's end or a comment's beginning, which would end its element"
    fi
    if grep -q "$(printf '\r')" "$f"; then die "$f has lines that end as on DOS"; fi
done

hash() { printf "'sha256-%s'" "$(sha256sum | cut -c 1-64 | tr a-f A-F | basenc --base16 -d | base64)"; }
style() { for f in $styles; do cat "$f"; done; }

policy="default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src $(style | hash)"
policy="$policy; script-src"
for f in $scripts; do policy="$policy $(hash <"$f")"; done

while IFS= read -r line; do
    case $line in
    *'<!--gpuspy:policy-->'*) echo "<meta http-equiv=\"Content-Security-Policy\" content=\"$policy\">" ;;
    *'<!--gpuspy:style-->'*) printf '<style>' && style && echo '</style>' ;;
    *'<!--gpuspy:scripts-->'*)
        for f in $scripts; do printf '<script>' && cat "$f" && echo '</script>'; done
        ;;
    *) printf '%s\n' "$line" ;;
    esac
done <"$page"
