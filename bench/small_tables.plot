#!/bin/bash
# bench/small_tables.plot - draws what bench/small_tables measured, as SVG: milliseconds with the clean close over blocks of a table.
#
#   bench/small_tables.plot TABLES <SUMMARY >SVG
#
# SUMMARY: lines of tables, kind ("postgres" or a threshold), blocks, milliseconds to fill, milliseconds with the close, and more.
set -euo pipefail

awk -v tables="$1" '
    function x_of(blocks) { return left + blocks / most_blocks * width }
    function y_of(ms) { return top + height - ms / most_ms * height }
    function text(x, y, anchor, words) { printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, words }
    function line(x1, y1, x2, y2, colour) {
        printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2, colour
    }
    function nice_step(range,   step) {
        for (step = 1; range / step > 8; step *= range / step > 16 ? 5 : 2) { }
        return step
    }
    $1 == tables {
        if (!($2 in points)) kinds[++kind_count] = $2
        points[$2] = points[$2] " " $3 ":" $5
        if ($3 > most_blocks) most_blocks = $3
        if ($5 > most_ms) most_ms = $5
    }
    END {
        left = 60; top = 40; width = 560; height = 320
        split("#444444 #d62728 #1f77b4 #2ca02c #9467bd #ff7f0e", colours, " ")
        most_ms *= 1.05
        print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 430\" font-family=\"sans-serif\" font-size=\"13\">"
        print "<rect width=\"800\" height=\"430\" fill=\"white\"/>"
        text(left, 24, "start", tables " tables: created, filled a block at a time, closed cleanly")
        for (ms = 0; ms <= most_ms; ms += nice_step(most_ms)) {
            line(left, y_of(ms), left + width, y_of(ms), "#dddddd")
            text(left - 8, y_of(ms) + 4, "end", ms)
        }
        text(left - 8, top - 8, "end", "ms")
        n = split(points[kinds[1]], pairs, " ")
        for (i = 1; i <= n; i++) { split(pairs[i], at, ":"); text(x_of(at[1]), top + height + 20, "middle", at[1]) }
        text(left + width / 2, top + height + 42, "middle", "blocks of a table")
        for (k = 1; k <= kind_count; k++) {
            n = split(points[kinds[k]], pairs, " ")
            path = ""
            for (i = 1; i <= n; i++) {
                split(pairs[i], at, ":")
                path = path sprintf(" %.1f,%.1f", x_of(at[1]), y_of(at[2]))
                printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x_of(at[1]), y_of(at[2]), colours[k]
            }
            printf "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", substr(path, 2), colours[k]
            line(left + width + 15, top + 20 * k, left + width + 40, top + 20 * k, colours[k])
            text(left + width + 46, top + 20 * k + 4, "start", kinds[k] == "postgres" ? "PostgreSQL 15" : "threshold " kinds[k])
        }
        print "</svg>"
    }'
