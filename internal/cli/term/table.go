package term

import (
	"fmt"
	"io"
	"strings"

	"github.com/mattn/go-runewidth"
)

// Columns prints a table whose columns are all aligned left.
func Columns(w io.Writer, rows [][]string) {
	widths := widthsOf(rows)
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(runewidth.FillRight(cell, widths[i]+2))
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// Table prints a table whose first column is aligned left, and the others right.
func Table(w io.Writer, rows [][]string) {
	widths := widthsOf(rows)
	for _, row := range rows {
		fmt.Fprint(w, runewidth.FillRight(row[0], widths[0]))
		for i, cell := range row[1:] {
			fmt.Fprint(w, "  ", runewidth.FillLeft(cell, widths[i+1]))
		}
		fmt.Fprintln(w)
	}
}

// Records prints a table as Columns does, unless w is a terminal that is too narrow for it. There, each row
// has a paragraph: its first n cells, and below them the others behind the names of their columns.
func Records(w io.Writer, rows [][]string, n int) {
	space := 2 * (len(rows[0]) - 1)
	for _, width := range widthsOf(rows) {
		space += width
	}
	if width := Width(w); width > 0 && width < space {
		paragraphs(w, rows, n, width)
		return
	}
	Columns(w, rows)
}

func paragraphs(w io.Writer, rows [][]string, n, width int) {
	const indent = "    "
	for _, row := range rows[1:] {
		var rest []string
		for i, cell := range row[n:] {
			if cell != "" {
				rest = append(rest, rows[0][n+i]+" "+cell)
			}
		}
		for _, line := range Wrap(strings.Join(row[:n], "  "), width) {
			fmt.Fprintln(w, line)
		}
		for _, line := range Wrap(strings.Join(rest, ", "), width-len(indent)) {
			fmt.Fprintln(w, indent+line)
		}
	}
}

// widthsOf returns the width of each column.
func widthsOf(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
	return widths
}
