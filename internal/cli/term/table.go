package term

import (
	"fmt"
	"io"
	"strings"

	"github.com/mattn/go-runewidth"
)

// Columns prints a table whose columns are all aligned left.
func Columns(w io.Writer, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
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
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
	for _, row := range rows {
		fmt.Fprint(w, runewidth.FillRight(row[0], widths[0]))
		for i, cell := range row[1:] {
			fmt.Fprint(w, "  ", runewidth.FillLeft(cell, widths[i+1]))
		}
		fmt.Fprintln(w)
	}
}
