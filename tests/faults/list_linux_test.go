package faults

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fxfer/fxfer/internal/path/lab"
)

const (
	sender   = true
	receiver = false
)

var (
	alone  = []outcome{byItself}
	rerun  = []outcome{again}
	either = []outcome{byItself, again}
)

func ptr[T any](v T) *T { return &v }

// killed kills one side. A client is run again, a server is restarted.
func killed(side bool) func(*trial) error { return func(t *trial) error { return t.kill(side) } }

func stopped(side bool, d time.Duration) func(*trial) error {
	return func(t *trial) error {
		err := t.signal(side, syscall.SIGSTOP)
		t.pause(d)
		return errors.Join(err, t.signal(side, syscall.SIGCONT))
	}
}

func down(d time.Duration) func(*trial) error {
	return func(t *trial) error {
		err := t.change(lab.Change{Down: d})
		t.pause(d)
		return err
	}
}

// changed applies c to the link. If d is not 0, it applies back after d.
func changed(c lab.Change, d time.Duration, back lab.Change) func(*trial) error {
	return func(t *trial) error {
		err := t.change(c)
		if d == 0 {
			return err
		}
		t.pause(d)
		return errors.Join(err, t.change(back))
	}
}

// picked applies do to the connections, sorted by the length of their queues, longest first.
func picked(do func(t *trial, cs []connection) error) func(*trial) error {
	return func(t *trial) error {
		cs, err := t.connections()
		if err != nil {
			return err
		}
		return do(t, cs)
	}
}

func sick(errno syscall.Errno, ops ...operation) func(*trial) error {
	return func(t *trial) error {
		t.disk.fail(errno, ops...)
		return nil
	}
}

func hanging(d time.Duration) func(*trial) error {
	return func(t *trial) error {
		t.disk.stop()
		t.pause(d)
		t.disk.heal()
		return nil
	}
}

func healed(t *trial) error {
	t.disk.heal()
	return nil
}

// remounted mounts a real disk anew. For that the server has to close its files there.
func remounted(t *trial) error {
	t.x.Process.End(syscall.SIGKILL)
	if err := errors.Join(t.real.unmount(), t.real.mount()); err != nil {
		return err
	}
	return t.x.Restart(t.ctx)
}

// jumped sets the clocks of server and client.
func jumped(server, client time.Duration) func(*trial) error {
	return func(t *trial) error { return errors.Join(t.clocks[0].set(server), t.clocks[1].set(client)) }
}

// path returns the path of the big file at the source.
func (t *trial) path() string { return t.folder.Abs(t.source + "/" + bigFile) }

func replaced(t *trial) error {
	if err := t.folder.Fill(t.ctx, t.source+"/new", t.size.big, byte(2+t.rng.IntN(100))); err != nil {
		return err
	}
	return os.Rename(t.folder.Abs(t.source+"/new"), t.path())
}

// eachSource calls f with each file and folder of the source.
func (t *trial) eachSource(f func(path string) error) error {
	all, err := filepath.Glob(t.folder.Abs(t.source + "/*/*"))
	for _, path := range append(all, t.path(), t.folder.Abs(t.source+"/b")) {
		err = errors.Join(err, f(path))
	}
	return err
}

// faults is the matrix. A client that was killed is run again by hand, so the outcome depends on
// which side was the client.
var faults = []fault{
	{name: "none", what: "nothing", want: alone},

	{name: "kill sender", what: "SIGKILL; a server is started again after 1 s", do: killed(sender), want: either},
	{name: "kill receiver", what: "SIGKILL; a server is started again after 1 s", do: killed(receiver), want: either},
	{name: "kill both", what: "SIGKILL to both", want: rerun, do: func(t *trial) error {
		return errors.Join(t.signal(t.push, syscall.SIGKILL), t.restart(syscall.SIGKILL))
	}},
	{name: "server restart", what: "SIGTERM to the server, and a new process after 1 s", want: alone, do: func(t *trial) error { return t.restart(syscall.SIGTERM) }},
	{name: "server away", what: "SIGKILL to the server, and a new process after 12 s", want: alone, do: func(t *trial) error {
		t.x.Process.End(syscall.SIGKILL)
		t.pause(12 * time.Second)
		return t.x.Restart(t.ctx)
	}},
	{name: "client interrupted", what: "SIGINT to the client", want: rerun, says: "interrupted", do: func(t *trial) error { return t.signal(t.push, syscall.SIGINT) }},
	{name: "sender stopped 9 s", what: "SIGSTOP, and SIGCONT after 9 s", do: stopped(sender, 9*time.Second), want: alone},
	{name: "receiver stopped 9 s", what: "SIGSTOP, and SIGCONT after 9 s", do: stopped(receiver, 9*time.Second), want: alone},
	{name: "server stopped 25 s", what: "SIGSTOP, and SIGCONT after 25 s: longer than a session survives", want: alone, silent: true,
		do: func(t *trial) error { return stopped(!t.push, 25*time.Second)(t) }},
	{name: "client stopped 25 s", what: "SIGSTOP, and SIGCONT after 25 s: longer than a session survives", want: alone,
		do: func(t *trial) error { return stopped(t.push, 25*time.Second)(t) }},
	{name: "server stopped 60 s", what: "SIGSTOP, and SIGCONT after 60 s", lasts: time.Minute, want: alone, silent: true,
		do: func(t *trial) error { return stopped(!t.push, time.Minute)(t) }},
	{name: "client stopped 60 s", what: "SIGSTOP, and SIGCONT after 60 s", lasts: time.Minute, want: alone,
		do: func(t *trial) error { return stopped(t.push, time.Minute)(t) }},

	{name: "link down 2 s", what: "all packets vanish", do: down(2 * time.Second), want: alone},
	{name: "link down 8 s", what: "all packets vanish", do: down(8 * time.Second), want: alone},
	{name: "link down 25 s", what: "all packets vanish", do: down(25 * time.Second), want: alone, silent: true},
	{name: "link down 60 s", what: "all packets vanish", lasts: time.Minute, do: down(time.Minute), want: alone, silent: true},
	{name: "link down 10 min", what: "all packets vanish", lasts: 10 * time.Minute, do: down(10 * time.Minute), want: alone, silent: true},
	{name: "link down one way 8 s", what: "what the receiver sends vanishes", want: alone, do: func(t *trial) error {
		back := lab.RightToLeft
		if !t.push {
			back = lab.LeftToRight
		}
		err := t.change(lab.Change{Direction: back, Down: 8 * time.Second})
		t.pause(8 * time.Second)
		return err
	}},
	{name: "stream black hole", what: "the packets of one data stream vanish from now on", want: alone, do: picked(func(t *trial, cs []connection) error { return t.block(cs[0]) })},
	{name: "control black hole", what: "the packets of the idlest connection vanish from now on", want: alone,
		do: picked(func(t *trial, cs []connection) error { return t.block(cs[len(cs)-1]) })},
	{name: "NAT forgets", what: "the packets of all present connections vanish from now on, new ones pass", want: alone, silent: true,
		do: picked(func(t *trial, cs []connection) error { return t.block(cs...) })},
	{name: "NAT rebinds", what: "the server sees all present connections come from other ports; what it sends to the old ones vanishes", want: alone,
		do: picked(func(t *trial, cs []connection) error { return t.rebind(cs...) })},
	{name: "stream reset", what: "one data stream's socket is destroyed", want: alone, do: picked(func(t *trial, cs []connection) error { return t.reset(cs[0]) })},
	{name: "control reset", what: "the idlest connection's socket is destroyed", want: alone,
		do: picked(func(t *trial, cs []connection) error { return t.reset(cs[len(cs)-1]) })},
	{name: "all reset", what: "all sockets are destroyed", want: alone, do: picked(func(t *trial, cs []connection) error { return t.reset(cs...) })},
	{name: "RTT jump", what: "20 → 300 ms from now on", do: changed(lab.Change{RTT: ptr(300 * time.Millisecond)}, 0, lab.Change{}), want: alone},
	{name: "rate drop", what: "100 → 5 Mbit/s for 5 s", want: alone,
		do: changed(lab.Change{Rate: ptr(int64(5e6))}, 5*time.Second, lab.Change{Rate: ptr(int64(lineRate))})},
	{name: "loss burst", what: "30 % loss for 3 s", do: changed(lab.Change{Loss: ptr(0.3)}, 3*time.Second, lab.Change{Loss: ptr(0.0)}), want: alone},
	{name: "reordering", what: "20 % of the segments are overtaken from now on", do: changed(lab.Change{Reorder: ptr(0.2)}, 0, lab.Change{}), want: alone},
	{name: "duplicates", what: "20 % of the segments arrive twice from now on", do: changed(lab.Change{Duplicate: ptr(0.2)}, 0, lab.Change{}), want: alone},
	{name: "duplicates out of order", what: "20 % of the segments are held back and 20 % arrive twice from now on, some of them once in time and once late", want: alone,
		do: changed(lab.Change{Duplicate: ptr(0.2), Reorder: ptr(0.2)}, 0, lab.Change{})},
	{name: "bit errors", what: "1 bit in 1,000,000 flips from now on, and TCP notices", do: changed(lab.Change{Corrupt: ptr(1e-6)}, 0, lab.Change{}), want: alone},
	{name: "forged segments", what: "a bit flips in 1 of 1,000 segments for 2 s, behind a right checksum", want: alone,
		do: changed(lab.Change{Forge: ptr(0.001)}, 2*time.Second, lab.Change{Forge: ptr(0.0)})},
	{name: "MTU black hole", what: "packets of more than 1308 bytes vanish from now on", want: alone,
		do: changed(lab.Change{PMTU: ptr(1308), BlackHole: ptr(true)}, 0, lab.Change{})},

	{name: "target full", what: "ENOSPC in writes until the command ended", disk: "target", want: rerun, brief: true, says: "no space", do: sick(syscall.ENOSPC, writing), lift: healed},
	{name: "target over quota", what: "EDQUOT in writes until the command ended", disk: "target", want: rerun, brief: true, says: "quota|no space", do: sick(syscall.EDQUOT, writing), lift: healed},
	{name: "EIO in writes", what: "until the command ended", disk: "target", want: rerun, says: "input/output error", do: sick(syscall.EIO, writing), lift: healed},
	{name: "EIO in fsync", what: "until the command ended", disk: "target", want: rerun, says: "input/output error", do: sick(syscall.EIO, syncing), lift: healed},
	{name: "fsync loses data", what: "the next fsync fails with EIO, and what it should have synced becomes zeros; then all is well", disk: "target", want: either, says: "input/output error",
		do: func(t *trial) error { t.disk.lose(); return nil }},
	{name: "EIO in reads", what: "of the source, until the command ended", disk: "source", want: rerun, says: "input/output error", do: sick(syscall.EIO, reading), lift: healed},
	{name: "target read-only", what: "EROFS in all changes, as after an ext4 error, until the command ended", disk: "target", want: rerun, brief: true, says: "read-only",
		do: sick(syscall.EROFS, writing, changing), lift: healed},
	{name: "ext4 full", what: "all space of the target's disk is taken until the command ended", disk: "ext4", want: rerun, brief: true, says: "no space",
		do: func(t *trial) error { return t.real.fill() }, lift: func(t *trial) error { return os.Remove(t.real.ballast()) }},
	{name: "ext4 read-only", what: "the kernel makes the target's disk read-only, as after damage; it is mounted anew before the command is run again", disk: "ext4", want: rerun, brief: true, says: "read-only",
		do: func(t *trial) error { return t.real.abort() }, lift: remounted},
	{name: "ext4 gone", what: "the target's disk is taken away, all that was not synced is lost; it is mounted anew before the command is run again", disk: "ext4", want: rerun, says: "input/output error|read-only",
		do: func(t *trial) error { return t.real.pull() }, lift: remounted},
	{name: "target hangs 5 s", what: "reads, writes and syncs do not return", disk: "target", do: hanging(5 * time.Second), want: alone},
	{name: "target hangs 25 s", what: "reads, writes and syncs do not return", disk: "target", do: hanging(25 * time.Second), want: alone},
	{name: "source hangs 25 s", what: "reads do not return", disk: "source", do: hanging(25 * time.Second), want: alone},
	{name: "target folder removed", what: "with all in it", want: either, says: ".", do: func(t *trial) error { return os.RemoveAll(t.folder.Abs(t.target)) }},
	{name: "target's parent removed", what: "with all in it, which is the share if the server receives; before the command is run again it is there anew", want: either, says: ".", do: func(t *trial) error {
		return os.RemoveAll(t.folder.Abs(t.dir + "/dst"))
	}, lift: func(t *trial) error { return t.folder.Mkdir(t.dir + "/dst") }},

	{name: "clocks ahead", what: "both hosts' clocks jump 25 h ahead", clock: true, want: alone, do: jumped(25*time.Hour, 25*time.Hour)},
	{name: "clocks back", what: "both hosts' clocks jump 25 h back", clock: true, want: alone, do: jumped(-25*time.Hour, -25*time.Hour)},
	{name: "clocks apart", what: "the server's clock jumps a year ahead, the client's a year back", clock: true, want: alone, do: jumped(8760*time.Hour, -8760*time.Hour)},

	{name: "source replaced", what: "a new file of the same size under the same name", own: true, mixed: true, want: either, says: "chang", do: replaced},
	{name: "source truncated", what: "to half", own: true, mixed: true, want: either, says: "chang|EOF|short", do: func(t *trial) error { return os.Truncate(t.path(), t.size.big/2) }},
	{name: "source grown", what: "by 1 MB", own: true, mixed: true, want: either, says: "chang", do: func(t *trial) error {
		f, err := os.OpenFile(t.path(), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(strings.Repeat("more", 250_000))
		return errors.Join(err, f.Close())
	}},
	{name: "source replaced before resume", what: "the client is killed; before the command is run again a new file is under the same name", own: true, want: rerun,
		do: func(t *trial) error { return t.signal(t.push, syscall.SIGKILL) }, lift: replaced},
	{name: "source unreadable", what: "chmod 000 of its files, until the command ended", own: true, want: either, says: "permission denied",
		do: func(t *trial) error {
			return t.eachSource(func(path string) error { return os.Chmod(path, 0) })
		},
		lift: func(t *trial) error {
			return t.eachSource(func(path string) error { return os.Chmod(path, 0o644) })
		}},
	{name: "two senders", what: "the same command once more at the same time", want: either, says: ".", do: func(t *trial) error {
		other, err := t.start(t.source)
		if err != nil {
			return err
		}
		<-other.ended // the outcome of the second command does not matter here
		return nil
	}},
}
