package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/tests/internal/hosts"
)

// contender is a way to move files from the sender of a stage to its receiver. Its functions know
// how to start it. Its state lasts as long as a stage.
type contender struct {
	name     string   // title of a column
	settings string   // how it was set up, for the report
	clear    bool     // it does not encrypt
	blind    bool     // it sends everything, also what is there already
	needs    []string // programs that it needs
	serve    func(context.Context, *stage) error
	transfer func(context.Context, *stage, *load, []string) (hosts.Command, error)
}

const (
	fxferName         = "fxfer"
	fxferNetAdminName = "fxfer with CAP_NET_ADMIN"
	fxferAutoName     = "fxfer with --compress auto"
	fxferQUICName     = "fxfer over QUIC"
	fxferTCPName      = "fxfer over TCP"
	fxferBeforeName   = "fxfer before"
	fxferBeforeFile   = "fxfer-before" // in the folder
	fxferPort         = 7433
)

// fxferSide is fxfer with one set of privileges and flags: a server, and a client that the server
// has admitted.
type fxferSide struct {
	name     string
	netAdmin bool
	flags    []string
	program  string // in the folder; "": fxfer
	home     string
	port     int
	pair     *hosts.Fxfer // set by serve
}

func (x *fxferSide) contender() contender {
	return contender{name: x.name, serve: x.serve, transfer: x.transfer}
}

func newFxfer(name string) *fxferSide {
	switch name {
	case fxferNetAdminName:
		return &fxferSide{name: name, netAdmin: true, home: "home/admin", port: fxferPort + 1}
	case fxferAutoName:
		return &fxferSide{name: name, flags: []string{"--compress", "auto"}, home: "home/auto", port: fxferPort + 2}
	case fxferQUICName:
		return &fxferSide{name: name, flags: []string{"--transport", "quic"}, home: "home/quic", port: fxferPort}
	case fxferBeforeName:
		return &fxferSide{name: name, program: fxferBeforeFile, home: "home/before", port: fxferPort}
	case fxferTCPName:
		return &fxferSide{name: name, flags: []string{"--transport", "tcp"}, home: "home/tcp", port: fxferPort + 1}
	}
	return &fxferSide{name: name, home: "home/plain", port: fxferPort}
}

func (x *fxferSide) serve(ctx context.Context, s *stage) error {
	x.pair = &hosts.Fxfer{Folder: s.Folder, Server: s.receiver, Client: s.sender, Addr: s.receiverAddr, Port: x.port, Home: x.home, NetAdmin: x.netAdmin, Program: x.program}
	return x.pair.Start(ctx, "--share", "in=in")
}

// busy returns the CPU seconds of the server so far.
func (x *fxferSide) busy() (float64, error) { return processSeconds(x.pair.Process.Cmd.Process.Pid) }

// transfer returns a command for a cold start. The flags of x come last, so that they take
// precedence. It prints no line for each file of a tree, because that is work that the other
// programs do not do.
func (x *fxferSide) transfer(_ context.Context, _ *stage, l *load, flags []string) (hosts.Command, error) {
	source := l.dir + "/"
	if l.files == 1 {
		source += l.names[0]
	}
	output := "--json"
	if l.tree() {
		output = "--quiet"
	}
	args := slices.Concat([]string{"send", output}, flags, x.flags)
	return x.pair.Cold(append(args, source, x.pair.URL("in/"))...)
}

// transferAs returns the command of one of several sessions at once, each cold and with a folder of
// its own.
func (x *fxferSide) transferAs(session int, l *load, flags []string) (hosts.Command, error) {
	name := strconv.Itoa(session)
	args := slices.Concat([]string{"send", "--json"}, flags, x.flags)
	return x.pair.ColdAs("fresh"+name, append(args, l.dir+"/", x.pair.URL("in/"+name+"/"))...)
}

// fxferLine is the part that is used of the lines that fxfer prints with --json.
type fxferLine struct {
	Type        string       `json:"type"`
	Elapsed     float64      `json:"elapsed_seconds"`
	Done        int64        `json:"bytes_done"`
	Path        string       `json:"path"`
	Kind        string       `json:"kind"`
	Digest      string       `json:"digest"`
	Streams     int          `json:"streams"`
	Connections int          `json:"quic_connections"`
	Congestion  string       `json:"congestion"`
	Retransmits int64        `json:"retransmitted_segments"`
	Limits      []fxferLimit `json:"limits"`
}

// fxferLimit is a cause of slowness that fxfer names.
type fxferLimit struct {
	Limiter string `json:"limiter"`
}

// says is what fxfer names as the cause of slowness.
func (l *fxferLine) says() string {
	if len(l.Limits) == 0 {
		return "nothing"
	}
	return l.Limits[0].Limiter
}

// connections returns how many connections carried the data. Over TCP each stream has one.
func (l *fxferLine) connections() int { return cmp.Or(l.Connections, l.Streams) }

// parseFxfer reads the output of fxfer --json: the progress, the digests by file name, and the
// summary.
func parseFxfer(stdout string) (points []point, digests map[string]string, summary fxferLine, err error) {
	digests = map[string]string{}
	for line := range strings.Lines(stdout) {
		if !strings.HasSuffix(line, "\n") {
			break // this line is not complete yet
		}
		var l fxferLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			return nil, nil, summary, fmt.Errorf("read fxfer's output: %w", err)
		}
		switch {
		case l.Type == "progress":
			points = append(points, point{time.Duration(l.Elapsed * float64(time.Second)), l.Done})
		case l.Type == "file" && l.Kind == "file":
			digests[path.Base(l.Path)] = l.Digest
		case l.Type == "summary":
			summary = l
		}
	}
	return points, digests, summary, nil
}

func fxferPoints(stdout string) []point {
	points, _, _, err := parseFxfer(stdout)
	if err != nil {
		return nil // as if nothing had moved
	}
	return points
}

// checkDigests returns an error unless each file has the digest that b3sum prints.
func checkDigests(got, want map[string]string) error {
	for name, digest := range want {
		if got[name] != digest {
			return fmt.Errorf("digest of %s: fxfer says %q, b3sum %q", name, got[name], digest)
		}
	}
	if len(got) != len(want) {
		return errors.New("fxfer reports digests of files that weren't sent")
	}
	return nil
}
