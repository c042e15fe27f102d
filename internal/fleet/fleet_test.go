package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

var now = time.Date(2026, 11, 20, 2, 0, 0, 0, time.UTC)

func TestNext(t *testing.T) {
	t.Parallel()
	shards := func(list string, dead ...bool) *progress {
		all := new(progress)
		for i, d := range dead {
			outcome := Ready
			if d {
				outcome = Dead
			}
			all.add(place{Send, list, i}, &Record{Outcome: outcome}, now)
		}
		return all
	}
	listed := shards("7-1", false)
	listed.list = &Record{Outcome: Ready, List: "7-1", Shards: 1, Files: 5, Bytes: 50}
	for name, c := range map[string]struct {
		job      Job
		progress *progress
		state    State
		task     Kind
	}{
		"new":                        {Job{State: New}, new(progress), Listing, List},
		"it was begun before":        {Job{State: New}, &progress{list: &Record{Outcome: Running}}, Listing, ""},
		"the end was begun before":   {Job{State: Sending}, &progress{finish: &Record{Outcome: Running}}, Finishing, ""},
		"listing":                    {Job{State: Listing}, new(progress), Listing, ""},
		"the list runs":              {Job{State: Listing}, &progress{list: &Record{Outcome: Running}}, Listing, ""},
		"the list is dead":           {Job{State: Listing}, &progress{list: &Record{Outcome: Dead, Reason: "why"}}, Failed, ""},
		"listed":                     {Job{State: Listing}, &progress{list: &Record{Outcome: Ready, List: "7-1", Shards: 2}}, Sending, ""},
		"listed, and all was sent":   {Job{State: Listing}, listed, Finishing, Finish},
		"an empty list":              {Job{State: Listing}, &progress{list: &Record{Outcome: Ready, List: "7-1"}}, Finishing, Finish},
		"one of two":                 {Job{State: Sending, List: "7-1", Shards: 2}, shards("7-1", false), Sending, ""},
		"two of two":                 {Job{State: Sending, List: "7-1", Shards: 2}, shards("7-1", false, false), Finishing, Finish},
		"one is dead":                {Job{State: Sending, List: "7-1", Shards: 2}, shards("7-1", false, true), Finishing, Finish},
		"shards of another list":     {Job{State: Sending, List: "7-2", Shards: 2}, shards("7-1", false, false), Sending, ""},
		"finishing":                  {Job{State: Finishing}, new(progress), Finishing, ""},
		"the last task waits":        {Job{State: Finishing}, &progress{finish: &Record{Outcome: Waiting}}, Finishing, ""},
		"finished":                   {Job{State: Finishing}, &progress{finish: &Record{Outcome: Ready}}, Done, ""},
		"the last task is dead":      {Job{State: Finishing}, &progress{finish: &Record{Outcome: Dead, Reason: "why"}}, Failed, ""},
		"done stays done":            {Job{State: Done}, &progress{finish: &Record{Outcome: Dead}}, Done, ""},
		"failed stays failed":        {Job{State: Failed}, &progress{finish: &Record{Outcome: Ready}}, Failed, ""},
		"cancelled stays cancelled":  {Job{State: Cancelled}, listed, Cancelled, ""},
		"a state of another version": {Job{State: "other"}, listed, "other", ""},
	} {
		after, task := next(c.job, c.progress, now)
		require.Equal(t, c.state, after.State, name)
		if task == nil {
			task = &Task{}
		}
		require.Equal(t, c.task, task.Kind, name)
		require.Equal(t, after.State.Ended() && !c.job.State.Ended(), after.Ended != nil, name)
		if after.State == Failed && c.job.State != Failed {
			require.Equal(t, "why", after.Reason, name)
		}
	}
}

// A shard may end more than once, also in different ways.
func TestTally(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all progress
		want := map[int]bool{}
		for range rapid.IntRange(1, 50).Draw(t, "ends") {
			n, outcome := rapid.IntRange(0, 5).Draw(t, "shard"), rapid.SampledFrom([]Outcome{Ready, Dead, Running, Waiting}).Draw(t, "outcome")
			all.add(place{Send, "l", n}, &Record{Outcome: outcome}, now)
			delete(want, n) // the last record counts
			if outcome == Ready || outcome == Dead {
				want[n] = outcome == Dead
			}
		}
		after, _ := next(Job{State: Sending, List: "l", Shards: 6}, &all, now)
		dead := 0
		for d := range maps.Values(want) {
			if d {
				dead++
			}
		}
		require.Equal(t, len(want)-dead, after.Done)
		require.Equal(t, dead, after.Dead)
		require.Equal(t, len(want) == 6, after.State == Finishing)
	})
}

// A task is overdue if neither its worker nor JetStream can be about to be heard of.
func TestOverdue(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	waiting := backoff(2)
	for name, c := range map[string]struct {
		job    Job
		place  place
		record Record
		age    time.Duration
		late   bool
	}{
		"it runs":                {Job{State: Sending, List: "l"}, place{Send, "l", 7}, Record{Outcome: Running}, 3 * lease, false},
		"its worker is silent":   {Job{State: Sending, List: "l"}, place{Send, "l", 7}, Record{Outcome: Running}, 3*lease + 1, true},
		"it waits":               {Job{State: Sending, List: "l"}, place{Send, "l", 7}, Record{Outcome: Waiting, Attempt: 2}, waiting + 3*lease, false},
		"it has waited too long": {Job{State: Sending, List: "l"}, place{Send, "l", 7}, Record{Outcome: Waiting, Attempt: 2}, waiting + 3*lease + 1, true},
		"it is of an older list": {Job{State: Sending, List: "k"}, place{Send, "l", 7}, Record{Outcome: Running}, time.Hour, false},
		"it has ended":           {Job{State: Sending, List: "l"}, place{Send, "l", 7}, Record{Outcome: Ready}, time.Hour, false},
		"it was given up":        {Job{State: Sending, List: "l"}, place{Send, "l", 7}, Record{Outcome: Dead}, time.Hour, false},
		"the list is not made":   {Job{State: Listing}, place{List, "", 0}, Record{Outcome: Running}, time.Hour, true},
		"nobody finishes":        {Job{State: Finishing}, place{Finish, "", 0}, Record{Outcome: Running}, time.Hour, true},
		"the job has ended":      {Job{State: Failed}, place{Finish, "", 0}, Record{Outcome: Running}, time.Hour, false},
		"heard of in the future": {Job{State: Finishing}, place{Finish, "", 0}, Record{Outcome: Running}, -time.Hour, false},
		"a task of another make": {Job{State: Finishing}, place{"other", "", 0}, Record{Outcome: Running}, time.Hour, false},
	} {
		var all progress
		all.add(c.place, &Record{Outcome: Running}, now.Add(-c.age))
		all.add(c.place, &c.record, now.Add(-c.age))
		c.job.ID = "j"
		var expected []*Task
		if c.late {
			expected = []*Task{{Version: Version, Job: "j", Kind: c.place.kind, List: c.place.list, Number: c.place.number}}
		}
		require.Equal(t, expected, overdue(c.job, &all, lease, now), name)
	}
}

// A task is of use from before its job says so until it is over.
func TestWanted(t *testing.T) {
	t.Parallel()
	for kind, states := range map[Kind][]State{
		List: {New, Listing}, Send: {Listing, Sending}, Finish: {Sending, Finishing}, "other": nil,
	} {
		for _, s := range []State{New, Listing, Sending, Finishing, Done, Failed, Cancelled} {
			expected := slices.Contains(states, s)
			require.Equal(t, expected, wanted(&Task{Kind: kind}, &Job{State: s}), "%s in %s", kind, s)
			expected = expected || s == Failed
			require.Equal(t, expected, wanted(&Task{Kind: kind}, &Job{State: s, Retries: 1}), "%s in %s, to be retried", kind, s)
		}
	}
	require.False(t, wanted(&Task{Kind: Send, List: "7-1"}, &Job{State: Sending, List: "7-2"}))
}

// Each file is in one shard, under one of its names, and no shard is too large.
func TestLister(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var all []fxfer.SourceFile
		sizes, total := map[string]int64{}, int64(0)
		inodes := rapid.IntRange(0, 200).Draw(t, "files")
		for i := range inodes {
			names, size := 1+uint64(max(0, rng.IntN(6)-3)), rng.Int64N(1000)
			total += size
			for n := range names {
				f := fxfer.SourceFile{Path: fmt.Sprintf("%d/%d", i, n), Size: size, Inode: uint64(i + 1), Names: names}
				all = append(all, f)
				sizes[f.Path] = size
			}
		}
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		files := map[string]int{}
		l := lister{cutter: cutter{maxBytes: 3000, maxFiles: 7}, prefix: "p/", linked: map[uint64]uint64{}}
		l.put = func(number int, list []byte) error {
			var bytes, n int64
			for path, err := range paths(list, "p/") {
				require.NoError(t, err)
				bytes += sizes[path]
				n++
				inode, _, _ := strings.Cut(path, "/")
				files[inode]++
			}
			require.LessOrEqual(t, n, int64(7))
			require.True(t, bytes <= 3000 || n == 1)
			require.Equal(t, l.shards, number)
			return nil
		}
		for _, f := range all {
			require.NoError(t, l.file(f))
		}
		require.NoError(t, l.flush())
		require.Len(t, files, inodes)
		for inode, n := range files {
			require.Equal(t, 1, n, inode)
		}
		require.EqualValues(t, inodes, l.total)
		require.Equal(t, total, l.totalBytes)
		require.Empty(t, l.linked)
	})
}

// A list leads nowhere but into the source.
func TestPaths(t *testing.T) {
	t.Parallel()
	for _, list := range []string{
		"cut off", "\x00", "/\x00", ".\x00", "p\x00", "p/\x00", "p/.\x00", "p/../q\x00", "p/a/../../q\x00", "p//a\x00", "p/a/\x00", "q/a\x00", "/p/a\x00",
		"p/a\x00../p/a\x00",
	} {
		bad := 0
		for p, err := range paths([]byte(list), "p/") {
			if err != nil {
				bad++
			} else {
				require.Equal(t, "a", p)
			}
		}
		require.Equal(t, 1, bad, "%q", list)
	}
	for _, list := range []string{"\x00", ".\x00", "../a\x00", "/a\x00"} {
		for p, err := range paths([]byte(list), "") {
			require.Error(t, err, "%q", p)
		}
	}
}

// What the controller holds does not follow the size of a tree.
func TestManyShards(t *testing.T) {
	t.Parallel()
	c := cutter{maxBytes: 1000, maxFiles: 1}
	for range 1_000_000 {
		c.next(1, 10)
	}
	require.Less(t, c.cuts, int64(300_000))
	c = cutter{maxBytes: largest, maxFiles: largest}
	for range 100 {
		require.False(t, c.next(1, maxList/100))
	}
	require.True(t, c.next(1, maxList/100))
}

// A later message has the last word, and of one message the later attempt. What ended stays so.
func TestFollows(t *testing.T) {
	t.Parallel()
	h := &held{message: 7, attempt: 3}
	for _, c := range []struct {
		message, attempt uint64
		running, ended   error
	}{
		{7, 3, nil, nil},
		{7, 2, nil, errOver},
		{6, 9, nil, errOver},
		{7, 4, errLost, errLost},
		{8, 1, errLost, errLost},
	} {
		for _, o := range []Outcome{Running, Waiting} {
			require.Equal(t, c.running, h.follows(&Record{Message: c.message, Attempt: c.attempt, Outcome: o}))
		}
		for _, o := range []Outcome{Ready, Dead} {
			require.Equal(t, c.ended, h.follows(&Record{Message: c.message, Attempt: c.attempt, Outcome: o}))
		}
	}
}

// Keys of tasks lead back to them.
func TestKeys(t *testing.T) {
	t.Parallel()
	for _, task := range []Task{{Job: "a-b", Kind: List}, {Job: "a-b", Kind: Finish}, {Job: "a-b", Kind: Send, List: "12-3", Number: 45}} {
		job, list, number, kind := split(task.key())
		found := Task{Job: job, List: list, Number: number, Kind: kind}
		require.Equal(t, task, found)
		require.Equal(t, "fxfer.v1.task."+task.key(), task.subject())
		require.NoError(t, task.check(task.subject()))
		require.Error(t, task.check("fxfer.v1.task.other.list"))
	}
	for _, bad := range []Task{
		{Job: "a", Kind: "other"}, {Job: "", Kind: List}, {Job: "a.b", Kind: List}, {Job: "ü", Kind: List}, {Job: "a", Kind: Send}, {Job: "a", Kind: Send, List: "*"},
		{Job: "a", Kind: Send, List: "1", Number: -1}, {Job: strings.Repeat("a", 65), Kind: List},
	} {
		require.Error(t, bad.check(bad.subject()), "%+v", bad)
	}
	for _, key := range []string{"", "a", "a.b.c", "a.b.1.2"} {
		job, _, _, _ := split(key)
		require.Empty(t, job, key)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	good := Job{Version: Version, ID: "a", Source: "/data/", URL: "fxfer://nas/files/x"}
	require.NoError(t, good.Check())
	for name, change := range map[string]func(*Job){
		"version":  func(j *Job) { j.Version = 2 },
		"ID":       func(j *Job) { j.ID = "a.b" },
		"relative": func(j *Job) { j.Source = "data" },
		"dots":     func(j *Job) { j.Source = "/data/link/../../etc" },
		"slashes":  func(j *Job) { j.Source = "/data//" },
		"no URL":   func(j *Job) { j.URL = "http://nas" },
		"no share": func(j *Job) { j.URL = "fxfer://nas" },
		"a token": func(j *Job) {
			j.URL = "fxfer://TOKENTOKENTOKENTOKENTOKE:FK82h9b2y7KV2pD2Qb6zphlanxwu_BxcydztaeB8tuM@nas/files"
		},
		"shards":   func(j *Job) { j.Options.ShardFiles = -1 },
		"priority": func(j *Job) { j.Options.Priority = "highest" },
	} {
		j := good
		change(&j)
		require.Error(t, j.Check(), name)
	}
}

// Keys are made once, and only their owner may read them.
func TestCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made, cert, err := controllerKeys(dir)
	require.NoError(t, err)
	again, same, err := controllerKeys(dir)
	require.NoError(t, err)
	require.Equal(t, made, again)
	require.Equal(t, cert.Certificate, same.Certificate)
	for _, name := range []string{"credentials.json", "controller.key"} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		if filepath.Separator == '/' {
			require.EqualValues(t, 0o600, info.Mode().Perm(), name)
		}
	}
	text, err := os.ReadFile(CredentialsFile(dir))
	require.NoError(t, err)
	require.NotContains(t, string(text), "PRIVATE")
	for _, bad := range []string{"", "{}", `{"version":2}`, `{"version":1,"certificate":"x","seed":"SU"}`, strings.Replace(string(text), `"seed": "SU`, `"seed": "XX`, 1)} {
		require.NoError(t, os.WriteFile(CredentialsFile(dir), []byte(bad), 0o600))
		_, err := LoadCredentials(CredentialsFile(dir))
		require.Error(t, err, bad)
		_, _, err = controllerKeys(dir)
		require.Error(t, err, "a damaged file is not replaced")
	}
}

func FuzzDecode(f *testing.F) {
	for _, v := range []any{LineAsk{Version: 1}, LineAnswer{Version: 1}, Job{Version: 1}, Task{Version: 1}, Record{Version: 1}, DeadTask{Version: 1}, Credentials{Version: 1}} {
		text, err := json.Marshal(v)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if j, err := decode[Job](text); err == nil && j.Check() == nil {
			require.True(t, filepath.IsAbs(j.Source))
			prefix := prefixOf(j.Source)
			require.True(t, prefix == "" || strings.HasSuffix(prefix, "/"), "%q", prefix)
		}
		if a, err := decode[LineAsk](text); err == nil {
			l := &allocations{line: Line{Rate: 1000}, began: now}
			for _, at := range []time.Duration{0, shareLease / 2, shareLease, 2 * shareLease} {
				require.LessOrEqual(t, l.ask(now.Add(at), a), int64(1000))
				if g := l.given[a.Worker]; g != nil {
					require.LessOrEqual(t, g.most, int64(1000))
				}
			}
		}
		if a, err := decode[LineAnswer](text); err == nil {
			s := &share{number: a.Number, asked: now}
			s.take(now, a)
			require.GreaterOrEqual(t, s.has, int64(0))
		}
		if task, err := decode[Task](text); err == nil {
			_ = task.subject()
		}
	})
}

// TestMissing: a worker on which a source is not mounted removes nothing at the target.
func TestMissing(t *testing.T) {
	t.Parallel()
	empty, full := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(full, "f"), nil, 0o600))
	for _, c := range []struct {
		source  string
		files   int64
		delete  bool
		refused bool
	}{
		{empty, 3, true, true},
		{empty, 3, false, false},
		{empty, 0, true, false},
		{full, 3, true, false},
		{filepath.Join(full, "f"), 1, true, false},
		{filepath.Join(empty, "none"), 3, true, true},
	} {
		h := &held{Worker: &Worker{Read: []string{empty, full}}, job: &Job{Source: c.source, Files: c.files, Options: Options{Delete: c.delete}}}
		err := h.missing(t.Context())
		require.Equal(t, c.refused, err != nil, "%+v: %v", c, err)
	}
}

// A watch lacks something if what the bucket had at one look has not come by the next one.
func TestBehind(t *testing.T) {
	t.Parallel()
	w := &watch{seen: 5}
	require.False(t, w.behind(5))
	require.False(t, w.behind(7), "it may be on its way")
	require.True(t, w.behind(7))
	w.seen = 7
	require.False(t, w.behind(9))
	w.seen = 8
	require.True(t, w.behind(9))
	w.seen = 20
	require.False(t, w.behind(19), "the answer is old")
}

func TestAway(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		nats.ErrNoServers, nats.ErrTimeout, io.EOF, &net.OpError{Op: "dial", Err: &net.DNSError{}},
		fmt.Errorf("of a queue: %w", &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}),
	} {
		require.True(t, Away(err), err)
	}
	for _, err := range []error{
		nats.ErrAuthorization, errors.New("no such file"), &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
		&net.OpError{Op: "remote error", Err: tls.AlertError(116)},
	} {
		require.False(t, Away(err), err)
	}
}

func TestUnheard(t *testing.T) {
	t.Parallel()
	some := new(progress)
	some.add(place{Send, "7-1", 0}, &Record{Outcome: Ready}, now)
	some.add(place{Send, "7-1", 2}, &Record{Outcome: Running}, now)
	some.add(place{Send, "7-1", 3}, &Record{Outcome: Dead}, now)
	some.add(place{Send, "7-2", 1}, &Record{Outcome: Ready}, now)
	known := &progress{list: &Record{Outcome: Running}, finish: &Record{Outcome: Waiting}}
	for name, c := range map[string]struct {
		job      Job
		progress *progress
		keys     []string
	}{
		"new":           {Job{State: New}, new(progress), nil},
		"list":          {Job{State: Listing}, new(progress), []string{"j.list"}},
		"a list runs":   {Job{State: Listing}, known, nil},
		"some":          {Job{State: Sending, List: "7-1", Shards: 6}, some, []string{"j.7-1.1", "j.7-1.4", "j.7-1.5"}},
		"none":          {Job{State: Sending, List: "7-1", Shards: 2}, new(progress), []string{"j.7-1.0", "j.7-1.1"}},
		"finish":        {Job{State: Finishing}, new(progress), []string{"j.finish"}},
		"the last runs": {Job{State: Finishing}, known, nil},
		"done":          {Job{State: Done, List: "7-1", Shards: 6}, some, nil},
	} {
		c.job.ID = "j"
		var keys []string
		for _, task := range unheard(c.job, c.progress) {
			keys = append(keys, task.key())
			require.True(t, wanted(task, &c.job), name)
		}
		require.Equal(t, c.keys, keys, name)
	}
	require.Len(t, unheard(Job{State: Sending, Shards: 1 << 60}, new(progress)), 1000)
}

// The lists of a large job are removed in portions, and those of other jobs stay.
func TestPortionOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lists, now int
		more       bool
	}{{0, 0, false}, {removedAtOnce, removedAtOnce, false}, {removedAtOnce + 1, removedAtOnce, true}} {
		all := []*jetstream.ObjectInfo{{ObjectMeta: jetstream.ObjectMeta{Name: "other.l.0"}}}
		for i := range c.lists {
			all = append(all, &jetstream.ObjectInfo{ObjectMeta: jetstream.ObjectMeta{Name: fmt.Sprintf("job.l.%d", i)}})
		}
		now, more := portionOf(all, "job")
		require.Len(t, now, c.now)
		require.NotContains(t, now, "other.l.0")
		require.Equal(t, c.more, more)
	}
}

// TestAllowed: a task whose files another session is sending is tried as often as one without a server.
func TestAllowed(t *testing.T) {
	t.Parallel()
	partial := &fxfer.Error{Kind: fxfer.KindPartial, Err: errors.New("some failed")}
	failed := func(kind fxfer.Kind) fxfer.FileResult {
		return fxfer.FileResult{Path: "a", Err: &fxfer.Error{Kind: kind, Err: errors.New("why")}}
	}
	busy, damaged := failed(fxfer.KindUnreachable), failed(fxfer.KindIntegrity)
	for want, all := range map[uint64][][]fxfer.FileResult{
		attempts:         {{busy}, {busy, busy}},
		hopelessAttempts: {nil, {damaged}, {busy, damaged}, {damaged, busy}},
	} {
		for _, failures := range all {
			err := because(partial, &fxfer.Report{Failures: failures})
			require.Equal(t, want, allowed(err), "%v", failures)
			require.ErrorContains(t, err, "some failed")
		}
	}
	require.NoError(t, because(nil, nil))
}

// A worker for which nobody has named a folder may read none, rather than any.
func TestWorkerReads(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, (&Worker{}).Run(ctx))
}
