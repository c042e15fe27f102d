package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The report of a delivery says when its files were there, and what was to be seen of them until then.
func TestBranchReport(t *testing.T) {
	at := func(tenths int) time.Duration { return time.Duration(tenths) * 100 * time.Millisecond }
	one := func(state string) (c counts) {
		c.add(state)
		return c
	}
	require.Equal(t, "–", counts{}.String())
	require.Equal(t, "sending", one("sending").String())
	require.Equal(t, "2 arriving, 1 there", counts{Arriving: 2, There: 1}.String())

	d := &delivery{route: &viaBranch, load: payload{files: 1, size: 20 * mb}, connections: 1, wait: at(4), wire: 22 * mb}
	d.moments = []moment{
		{at: at(1)},
		{at: at(5), door: one("arriving"), board: one("arriving")},
		{at: at(20), door: one("arriving"), board: one("arriving"), wire: 9 * kib}, // a login
		{at: at(56), door: one("sending"), board: one("sending"), wire: mb},
		{at: at(79), door: one("sending"), board: one("sending"), wire: 21 * mb, centre: 1},
		{at: at(80), door: one("there"), board: one("there"), wire: 21 * mb, centre: 1},
	}
	d.listings = []listing{{at(5), one("arriving")}, {at(60), one("sending")}}
	require.True(t, d.over())
	d.there, d.busy = d.spans()
	require.Equal(t, at(79), d.there)
	require.Equal(t, at(59), d.busy, "from the last moment before the data")
	require.Equal(t, [][]string{
		{"after", "`.state`", "dashboard", "`fxfer queue`", "whole in the centre"},
		{"0.1 s", "–", "–", "–", "0"},
		{"0.5 s", "arriving", "arriving", "arriving", "0"},
		{"5.6 s", "sending", "sending", "arriving", "0"},
		{"7.9 s", "sending", "sending", "sending", "1"},
		{"8.0 s", "there", "there", "sending", "1"},
	}, timeline(d))

	d.moments = d.moments[:5]
	require.False(t, d.over(), "no word says yet that the file is there")
	d.route = &toDoor
	require.True(t, d.over(), "nobody says anything there")
	failed := &delivery{route: &confirmed, load: d.load, connections: parallel, failed: errBusy}
	text := branchReport([]*delivery{d, failed}, []companion{{name: besideName(nil), rate: 90 * mbit, span: at(150)}, {name: besideName(d), rate: 45 * mbit, others: 40 * mbit, span: at(150)}}, &machine{})
	require.Contains(t, text, "| straight to fxfer in the centre, 1 × 20 MB | 0.4 s | 0 | 7.9 s | 1.100 | 0.29 |")
	require.Contains(t, text, "| a flow beside straight to fxfer in the centre, 1 × 20 MB | 45.0 Mbit/s | 0.50 | 40.0 Mbit/s | 15 s |")
	require.Contains(t, text, "- "+failed.name()+": "+errBusy.Error())
	intro, _, _ := strings.Cut(text, "\n## ")
	for line := range strings.Lines(intro) {
		require.LessOrEqual(t, len([]rune(line)), 101)
	}
}
