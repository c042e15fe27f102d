package main

import (
	"time"

	"github.com/fxfer/fxfer/internal/path/lab"
)

const neighboursPage = "neighbours"

// neighbours is a day in an office: somebody sends, and others use the line, too.
func neighbours(span time.Duration, before bool) sharing {
	g := sharing{
		name: "neighbours", page: neighboursPage, title: "Who sends, and what the neighbours notice",
		about: "Each row is one who sends, in three scenes: beside a UDP stream of 2 Mbit/s, such as a video call; beside a cubic flow that was there first; " +
			"and beside a BBR flow that was there first. Cubic is the default of both hosts, and BBR is allowed. " +
			"Paced streams send 0.9 of the line together. rsync and scp have one connection.",
		columns: []column{
			goodputColumn, medianColumn, p99Column, droppedColumn, againColumn, udpColumn,
			keepsColumn("a cubic flow keeps", 1), beside("goodput beside it", 1), othersDropped("its drops", 1),
			keepsColumn("a BBR flow keeps", 2), beside("goodput beside it", 2), othersDropped("its drops", 2),
		},
	}
	for _, l := range []lab.Link{line(gbit, 50*time.Millisecond, 1), line(300*mbit, 80*time.Millisecond, 1), line(100*mbit, 20*time.Millisecond, 1)} {
		for _, p := range officePlayers(before, l.Rate) {
			g.rows = append(g.rows, sharedRow{group: lineName(l), name: p.name, player: p, scenes: []scene{
				{link: l, hosts: cubicDefault, udp: true, span: span},
				{link: l, hosts: cubicDefault, others: &lab.Cross{Congestion: "cubic", Flows: 1}, lead: lead, span: span},
				{link: l, hosts: cubicDefault, others: &lab.Cross{Congestion: "bbr", Flows: 1}, lead: lead, span: span},
			}})
		}
	}
	return g
}

// officePlayers returns all who send. Those with a pace send 0.9 of the line's rate.
func officePlayers(before bool, rate int64) []player {
	pace := func(streams int64) string { return showFlagRate(rate * 9 / 10 / streams) }
	var players []player
	if before {
		players = append(players, player{name: "fxfer before", program: fxferBeforeName})
	}
	return append(players,
		player{name: "fxfer", program: fxferName},
		player{name: "fxfer --priority low", program: fxferName, flags: []string{"--priority", "low"}},
		player{name: "fxfer --priority high", program: fxferName, flags: []string{"--priority", "high"}},
		player{name: "fxfer --streams 4 --congestion cubic", program: fxferName, flags: []string{"--streams", "4", "--congestion", "cubic"}},
		player{name: "iperf3, 16 × BBR", program: iperfName, flags: []string{"-P", "16", "-C", "bbr"}},
		player{name: "iperf3, 16 × BBR, paced", program: iperfName, flags: []string{"-P", "16", "-C", "bbr", "--fq-rate", pace(16)}},
		player{name: "iperf3, 4 × cubic", program: iperfName, flags: []string{"-P", "4", "-C", "cubic"}},
		player{name: "iperf3, 4 × cubic, paced", program: iperfName, flags: []string{"-P", "4", "-C", "cubic", "--fq-rate", pace(4)}},
		player{name: "iperf3, 1 × cubic", program: iperfName, flags: []string{"-P", "1", "-C", "cubic"}},
		player{name: "rsync", program: "rsync"},
		player{name: "lftp, 8 connections", program: "lftp"},
		player{name: "scp", program: "scp"},
	)
}
