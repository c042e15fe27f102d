package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// deliveries are what the grid branch measures: by each route some files over one connection, many
// over several, and a large one.
func deliveries(quick bool) (all []*delivery) {
	few, many, large := payload{files: 25, size: mb}, payload{files: 100, size: mb}, payload{files: 1, size: 200 * mb}
	if quick {
		few, many, large = payload{files: 3, size: mb}, payload{files: 10, size: mb}, payload{files: 1, size: 20 * mb}
	}
	for _, r := range []*route{&viaBranch, &confirmed, &toDoor, &toVsftpd} {
		all = append(all,
			&delivery{route: r, load: few, connections: 1},
			&delivery{route: r, load: many, connections: parallel},
			&delivery{route: r, load: large, connections: 1})
	}
	return all
}

// name is that of the delivery's row.
func (d *delivery) name() string {
	text := d.route.name + ", " + d.load.String()
	if d.connections > 1 {
		text += fmt.Sprintf(" over %d connections", d.connections)
	}
	return text
}

// besideName is the name of the row of a flow beside d, nil for none.
func besideName(d *delivery) string {
	if d == nil {
		return "a flow alone"
	}
	return "a flow beside " + d.name()
}

// branches runs those rows of the grid branch whose names match, and returns its page.
func (b *bench) branches(ctx context.Context, rows *regexp.Regexp) (text string, err error) {
	m, err := describeMachine(time.Now())
	if err != nil {
		return "", err
	}
	all := deliveries(b.quick)
	few, many, large := all[0].load, all[1].load, all[2].load
	all = slices.DeleteFunc(all, func(d *delivery) bool { return !rows.MatchString(d.name()) })
	beside := slices.DeleteFunc([]*delivery{
		nil,
		{route: &toDoor, load: large, connections: 1}, {route: &toDoor, load: many, connections: parallel},
		{route: &viaBranch, load: large, connections: 1}, // still sends when the grid ends
	}, func(d *delivery) bool { return !rows.MatchString(besideName(d)) })
	if err := b.keep(ctx, []payload{few, many, large}); err != nil {
		return "", err
	}
	var shares []*route
	for _, d := range slices.Concat(all, beside) {
		if d != nil && d.route.viaBranch() {
			shares = append(shares, d.route)
		}
	}
	s, err := newSite(ctx, b.folder, shares)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	share := 0
	name := func(d *delivery) string {
		if d == nil || !d.route.viaBranch() {
			return "straight"
		}
		share++
		return shareName(share - 1)
	}
	for _, d := range all {
		name := name(d)
		d.failed = s.deliver(ctx, d, name)
		b.say("%s: %s", d.name(), orError(fmt.Sprintf("%.1f s, there after %.1f s", d.wait.Seconds(), d.there.Seconds()), d.failed))
		if err := errors.Join(ctx.Err(), os.RemoveAll(s.Abs("in/"+name))); err != nil {
			return "", err
		}
		if d.route.viaBranch() {
			if err := s.Empty("branch/" + name); err != nil {
				return "", err
			}
		}
		if err := pause(ctx, time.Second); err != nil { // the line is idle by then
			return "", err
		}
	}
	var flows []companion
	for _, d := range beside {
		x, err := s.accompany(ctx, d, name(d))
		x.name, x.failed = besideName(d), err
		b.say("%s: %s", x.name, orError(showRate(x.rate), x.failed))
		flows = append(flows, x)
		if err := errors.Join(ctx.Err(), s.Empty("in")); err != nil {
			return "", err
		}
		if err := pause(ctx, 2*time.Second); err != nil {
			return "", err
		}
	}
	return branchReport(all, flows, &m), nil
}

// branchReport is the page.
func branchReport(all []*delivery, flows []companion, m *machine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# From a branch to the centre\n\n"+
		"`go run ./tests/bench -grid branch`, run as root on an idle machine, writes this page in less than\n"+
		"ten minutes. A client in a branch has lftp. It reaches a server in the branch over\n"+
		"%s, and the centre over a WAN of %s behind that. Each line has a\n"+
		"queue of one bandwidth-delay product, and cubic is the default of all hosts.\n\n"+
		"The server in the branch is fxfer with a door for FTP and `forward` with `priority: low`, with and\n"+
		"without `confirm: remote`. All else is as by default: a file is sent on when it has not changed for\n"+
		"5 s, or at once if its client waits for that. The old way is lftp straight over the WAN, to fxfer's\n"+
		"door with TLS, and to vsftpd in clear. lftp runs `mirror -R --no-perms`, and waits for no reply\n"+
		"where it need not (`ftp:sync-mode no`). All files are compared by BLAKE3 in the end.\n",
		lineName(branchLegs[0].Link), lineName(branchLegs[1].Link))

	b.WriteString("\n## How long the client waits, and what the WAN carries\n\n")
	rows := [][]string{{"", "the client waits", "there when it ends", "all are there after", "bytes on the WAN ÷ data", "goodput ÷ limit"}}
	var failures, paused []string
	for _, d := range all {
		row := []string{d.name()}
		if d.failed != nil {
			failures = append(failures, d.name()+": "+d.failed.Error())
			rows = append(rows, append(row, "–", "–", "–", "–", "–"))
			continue
		}
		if d.paused > longPause {
			paused = append(paused, fmt.Sprintf("%s: the machine stood still for %.1f s", d.name(), d.paused.Seconds()))
		}
		limit := goodputLimit(branchLegs[1].Link.Rate)
		rows = append(rows, append(row, fmt.Sprintf("%.1f s", d.wait.Seconds()), fmt.Sprint(d.atExit), fmt.Sprintf("%.1f s", d.there.Seconds()),
			fmt.Sprintf("%.3f", float64(d.wire)/float64(d.load.bytes())), fmt.Sprintf("%.2f", secondsAt(d.load.bytes(), limit)/d.busy.Seconds())))
	}
	table(&b, rows)
	b.WriteString("\n- **Bytes on the WAN** are those of both directions, with the framing of Ethernet.\n" +
		"- **Goodput ÷ limit** is that of the data, from the first 64 KiB on the WAN until all files are\n" +
		"  there, as part of what TCP can carry there.\n")

	b.WriteString("\n## What a neighbour on the WAN keeps\n\n" +
		"A cubic flow from the branch to the centre was there 8 s before. Both are measured for as long as\n" +
		"the upload is there, at most 15 s. For `forward`, that begins when it begins to send.\n\n")
	rows = [][]string{{"", "the flow gets", "of what it gets alone", "everything else on the WAN", "measured for"}}
	var alone float64
	for _, x := range flows {
		if x.name == besideName(nil) {
			alone = x.rate
		}
		if x.failed != nil {
			failures = append(failures, x.name+": "+x.failed.Error())
			continue
		}
		rows = append(rows, []string{x.name, showRate(x.rate), fmt.Sprintf("%.2f", x.rate/alone), showRate(max(0, x.others)), fmt.Sprintf("%.0f s", x.span.Seconds())})
	}
	table(&b, rows)

	b.WriteString("\n## What is to be seen of the files at each moment\n\n" +
		"The client's `.state`, the dashboard and the files in the centre are read every 0.1 s, and\n" +
		"`fxfer queue` every 0.5 s. Times are since the client began. With `confirm: remote`, lftp has its\n" +
		"reply when the file is there, and sets the file's time then: so it is arriving again, until its\n" +
		"time is there, too.\n")
	for _, d := range all {
		if d.route.viaBranch() && d.failed == nil {
			fmt.Fprintf(&b, "\n%s. The client waited %.1f s:\n\n", d.name(), d.wait.Seconds())
			table(&b, timeline(d))
		}
	}
	looks, early := 0, 0
	for _, d := range all {
		if d.route.viaBranch() {
			looks, early = looks+len(d.moments), early+d.early
		}
	}
	fmt.Fprintf(&b, "\n`.state` was read %s times. It said of more files that they are there than were whole in the\n"+
		"centre at **%d** of these times.\n", showCount(looks), early)
	if len(failures) > 0 {
		fmt.Fprintf(&b, "\nNot measured:\n\n%s", bullets(failures))
	}
	if len(paused) > 0 {
		fmt.Fprintf(&b, "\nThe machine was busy:\n\n%s", bullets(paused))
	}
	fmt.Fprintf(&b, "\n%s\n", m)
	return b.String()
}

// timeline has a row for each change of what is to be seen of a single file. Of several, it has about
// a dozen rows at equal distances, and the last one.
func timeline(d *delivery) [][]string {
	rows := [][]string{{"after", "`.state`", "dashboard", "`fxfer queue`", "whole in the centre"}}
	var step time.Duration
	if d.load.files > 1 && len(d.moments) > 0 {
		step = max(time.Second, (d.moments[len(d.moments)-1].at / 12).Round(time.Second))
	}
	var before []string
	var next time.Duration
	for i, m := range d.moments {
		said := counts{}
		for _, x := range d.listings {
			if x.at <= m.at {
				said = x.counts
			}
		}
		row := []string{m.door.String(), m.board.String(), said.String(), fmt.Sprint(m.centre)}
		last := i+1 == len(d.moments)
		if m.at < next && !last || slices.Equal(row, before) && !last {
			continue
		}
		before, next = row, m.at.Truncate(max(step, 1))+step
		rows = append(rows, append([]string{fmt.Sprintf("%.1f s", m.at.Seconds())}, row...))
	}
	return rows
}
