package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// examples holds a message of each type with every field set.
func examples() []Message {
	return []Message{
		&Hello{Version: Version, Session: [16]byte{1}, Secret: [32]byte{2}, Intent: Push, Share: "s", Paths: []string{"a", "b/"}, Fresh: true,
			SockBuf: 65536, Congestion: "bbr", RateLimit: 1e9, MaxStreams: 32, Proof: make([]byte, 32), Agent: "fxfer",
			Target: Target{
				Compare: Compare{Checksum: true, Update: true, Existing: true, IgnoreExisting: true}, Sync: SyncNone, Readback: true,
				NumericIDs: true, Delete: true, MaxDelete: 5, BackupDir: "old", DryRun: true, Delta: DeltaAuto, AllowFailed: 7,
			},
			Select: Select{Rules: []string{"*.o", "!x"}, MaxSize: 7, NewerThan: -8, OneFileSystem: true, Compress: "auto"}, Snapshot: "2026-11-20T020000Z",
			Replaces: [16]byte{3}, Priority: LowPriority, Capability: []byte("cap"), Relayed: true, Range: Range{Log: 34, Number: 300}, Line: 1200},
		&Join{Version: Version, Session: [16]byte{1}, Secret: [32]byte{2}, Stream: 7, SockBuf: 1, Congestion: "reno", Line: 600_000},
		&Welcome{Agent: "a", Host: "h", MaxStreams: 64, LeastPriority: LowPriority, MostPriority: HighPriority, Ways: true},
		&Refuse{Code: CodeTrust, Text: "no"},
		&Manifest{Single: true, Prune: true, Delta: true},
		&Entries{First: 3, Entries: []Entry{
			{Kind: File, Path: "a/b", Size: 1 << 40, ModTime: -5, Mode: 0o4755, Ino: 1 << 63, Dev: 9, BlockLog: 20},
			{Kind: File, Path: "-", Size: Unknown, BlockLog: 16},
			{Kind: Dir, Path: "a", Mode: 0o700}, {Kind: Symlink, Path: "l", Link: "../x", Alias: "k", First: 2}, {Kind: Share, Path: "s", Link: "rw"},
			{Kind: File, Path: "h", BlockLog: 16, Holes: true, Owned: true, Listed: true, UID: 1<<32 - 1, GID: 5, User: "u", Group: "g",
				Xattrs: []Xattr{{"user.a", []byte{1}}, {"user.b", []byte{}}}},
			{Kind: Hardlink, Path: "h2", Link: "h", First: 5}, {Kind: CharDevice, Path: "null", Rdev: 0x103}, {Kind: Fifo, Path: "p"},
		}},
		&EndManifest{Count: 8, Bytes: 1 << 50},
		&Answers{Answers: []Answer{
			{Index: 1, Verdict: Need, Have: []Extent{{0, 3}, {5, 1}}}, {Index: 2, Verdict: Same}, {Index: 3, Verdict: Done},
			{Index: 4, Verdict: Fail, Code: CodeNoSpace, Text: "full"}, {Index: 5, Verdict: Skip}, {Index: 6, Verdict: Hash, Digest: [32]byte{4}},
			{Index: 7, Verdict: Lack, New: true}, {Index: 8, Verdict: Meta},
			{Index: 9, Verdict: Need, Delta: DeltaChunks, Old: 1 << 40, Have: []Extent{{0, 3}}},
		}},
		&Written{Blocks: []BlockID{{1, 2}, {3, 4}}},
		&Resend{Index: 1, Blocks: []Extent{{7, 2}}},
		&EndEntry{Index: 1, Size: 5, Digest: [32]byte{9}, Holes: []Extent{{1, 2}}},
		&EntryFailed{Index: 1, Code: CodeChanged, Text: "x"},
		&Placed{Entries: []Extent{{0, 1000}}}, &Compared{Index: 3, Same: true}, &Prune{Folders: []string{".", "a"}},
		&Folder{Path: "a", Names: []string{"x", "\xff"}}, &Extra{Names: []uint64{0, 7}}, &Removed{Kind: Dir, Path: "a/x"},
		&Warning{What: "owner", Path: "a", Text: "no", Count: 4},
		&Digests{Digests: []EntryDigest{{Index: 3, Digest: [32]byte{1}}, {Index: 5, Digest: [32]byte{2}}}},
		&Finished{}, &Ping{Time: -1}, &Pong{Time: 1 << 62},
		&Streams{Want: 9, Dead: []uint64{1, 2}},
		&Sample{Values: []Value{{"rcvbuf", 4}}},
		&Test{Kind: Exchange, Size: 2048, Split: true, NoDelay: true, Time: 5000},
		&Opened{Port: 7433, Token: [16]byte{5}},
		&Pick{Index: 3, Delta: DeltaFixed},
		&Pieces{Index: 3, Start: 1 << 20, Log: 12, Digests: []ShortDigest{{1}, {2}}},
		&Chunks{Index: 3, Start: 77, Chunks: []Chunk{{8192, ShortDigest{1}}, {1, ShortDigest{2}}}},
		&Ask{Index: 3, Blocks: []Extent{{0, 3}, {5, 1}}},
		&Empty{Index: 3, Blocks: []Extent{{0, 3}, {5, 1}}},
		&Retire{Streams: []uint64{0, 300}}, &Prefer{Priority: NormalPriority}, &Limit{RateLimit: 5e7}, &Siblings{Sessions: 4, Own: 1 << 20, All: 1 << 33, Turn: 9},
		&Volley{Proof: [16]byte{6}, First: 9, Sizes: []uint64{1472, 65507}, Time: 100},
		&Operation{Do: OpMove, Paths: []string{"a", "b/c"}, To: "d", Into: true, Replace: true, Recursive: true, DryRun: true},
		&Content{Data: []byte("abc")},
		&Operated{Code: CodeNotEmpty, Text: "x", Bytes: 1 << 40, Entries: 3, Digest: [32]byte{7}},
		&CopyRequest{Do: CopyAdd, ID: "7f", Share: "s", Path: "a/", To: "fxfer://b/t", Capability: []byte("cap"), RateLimit: 1e9, Priority: HighPriority},
		&CopyState{ID: "7f", From: "s/a", To: "fxfer://b/t", State: "done", Added: 1, Ended: 2, Until: 3, Bytes: 4, TotalBytes: 1 << 50, Files: 6, TotalFiles: 7, Failed: 8, Rate: 9, Text: "x"},
		&Relay{Version: Version, Target: "nas:7433", Proof: make([]byte, 32)}, &Relayed{},
		&Await{Version: Version}, &Called{ID: [16]byte{1}}, &Meet{Version: Version, ID: [16]byte{2}},
	}
}

// TestBytes compares encoded messages and block headers with testdata/messages.txt. Those bytes never change: a
// peer of another release reads them.
func TestBytes(t *testing.T) {
	var b strings.Builder
	for _, m := range examples() {
		fmt.Fprintf(&b, "%T %x\n", m, Append(nil, m))
	}
	for _, h := range headers() {
		var head [BlockHeaderLen]byte
		h.Put(head[:])
		fmt.Fprintf(&b, "%T %x\n", h, head)
	}
	want, err := os.ReadFile("testdata/messages.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), b.String())
}

// TestShorter: a peer of a release without priorities or aliases sends messages that end earlier.
func TestShorter(t *testing.T) {
	cut := func(m Message, bytes int) []byte {
		b := Append(nil, m)
		return b[headerLen : len(b)-bytes]
	}
	hello, err := Decode(TypeHello, cut(&Hello{Version: Version, Agent: "a", Priority: HighPriority}, 6))
	require.NoError(t, err)
	require.Equal(t, "a", hello.(*Hello).Agent)
	require.Equal(t, NoPriority, hello.(*Hello).Priority)
	hello, err = Decode(TypeHello, cut(&Hello{Version: Version, Relayed: true}, 3))
	require.NoError(t, err)
	require.True(t, hello.(*Hello).Relayed)
	require.Zero(t, hello.(*Hello).Range)
	hello, err = Decode(TypeHello, cut(&Hello{Version: Version, Range: Range{Number: 7}}, 1))
	require.NoError(t, err)
	require.Equal(t, uint64(7), hello.(*Hello).Range.Number)
	_, err = Decode(TypeHello, cut(&Hello{Version: Version}, 2))
	require.ErrorIs(t, err, ErrMalformed, "half a range")
	join, err := Decode(TypeJoin, cut(&Join{Version: Version, Stream: 7, Congestion: "reno"}, 1))
	require.NoError(t, err)
	require.Equal(t, &Join{Version: Version, Stream: 7, Congestion: "reno"}, join, "without the rate of the line")
	welcome, err := Decode(TypeWelcome, cut(&Welcome{MaxStreams: 3, LeastPriority: LowPriority, MostPriority: LowPriority, Ways: true}, 3))
	require.NoError(t, err)
	require.Equal(t, &Welcome{MaxStreams: 3}, welcome)
	welcome, err = Decode(TypeWelcome, cut(&Welcome{MaxStreams: 3, LeastPriority: LowPriority, Ways: true}, 1))
	require.NoError(t, err)
	require.Equal(t, &Welcome{MaxStreams: 3, LeastPriority: LowPriority}, welcome, "without ways to send requests")

	entries, err := Decode(TypeEntries, cut(&Entries{First: 3, Entries: []Entry{{Kind: Dir, Path: "a"}}}, 1))
	require.NoError(t, err)
	require.Equal(t, &Entries{First: 3, Entries: []Entry{{Kind: Dir, Path: "a"}}}, entries, "without aliases")

	later, err := Decode(TypePrefer, []byte{77})
	require.NoError(t, err)
	require.Equal(t, &Prefer{}, later, "a priority of a later release")
}

// TestSpec compares the table of messages with the constants, and both with SPEC.md.
func TestSpec(t *testing.T) {
	text, err := os.ReadFile("SPEC.md")
	require.NoError(t, err)
	spec := string(text)
	names, types, codes := declared(t)

	table := map[string]int{}
	for i, row := range messages {
		if row.empty == nil {
			continue
		}
		m := row.empty()
		require.Equal(t, Type(i), m.Type())
		require.Equal(t, "*wire."+row.name, fmt.Sprintf("%T", m))
		table[row.name] = i
		section := regexp.MustCompile(`(?ms)^### ` + row.name + ` \(.*?^##`).FindString(spec)
		for field := range reflect.TypeOf(m).Elem().Fields() {
			require.Contains(t, section, "`"+field.Name+"`", "fields of %s", row.name)
		}
	}
	require.Equal(t, types, table)
	require.Equal(t, types, numbers(spec, `(?m)^### (\w+) \((\d+)\)$`, 1, 2))
	require.Equal(t, codes, numbers(spec, `(?m)^\| (\d+) \| (Code\w+) \|`, 2, 1))
	require.Len(t, Codes(), len(codes))
	require.Len(t, examples(), len(table))
	for _, word := range regexp.MustCompile(`\*\*([A-Z]\w+)\*\*`).FindAllStringSubmatch(spec, -1) {
		require.Contains(t, names, word[1])
	}
}

// numbers finds names and their numbers in a text.
func numbers(text, pattern string, name, number int) map[string]int {
	found := map[string]int{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found[m[name]], _ = strconv.Atoi(m[number])
	}
	return found
}

// declared returns the names that this package declares, the message types without "Type", and the
// codes.
func declared(t *testing.T) (names map[string]bool, types, codes map[string]int) {
	names, types, codes = map[string]bool{}, map[string]int{}, map[string]int{}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				names[n.Name.Name] = true
			case *ast.ValueSpec:
				names[n.Names[0].Name] = true
				kind, _ := n.Type.(*ast.Ident)
				if kind == nil || len(n.Values) != 1 {
					break
				}
				switch name, value := n.Names[0].Name, n.Values[0].(*ast.BasicLit).Value; kind.Name {
				case "Type":
					types[strings.TrimPrefix(name, "Type")], err = strconv.Atoi(value)
				case "Code":
					codes[name], err = strconv.Atoi(value)
				}
				require.NoError(t, err)
			}
			return true
		})
	}
	return names, types, codes
}

func TestRoundTrip(t *testing.T) {
	var stream []byte
	for _, m := range examples() {
		stream = Append(stream, m)
		stream = append(stream, 200, 0, 0, 0, 2, 'x', 'y') // an unknown type is skipped
	}
	r := NewReader(bytes.NewReader(stream), MaxMessage)
	for _, want := range examples() {
		got, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := r.Next()
	require.ErrorIs(t, err, io.EOF)
}

// TestReuse: a reader that uses lists again leaves nothing of one message in the next.
func TestReuse(t *testing.T) {
	var full []Message
	for _, m := range examples() {
		switch m.(type) {
		case *Entries, *Answers:
			full = append(full, m)
		}
	}
	require.Len(t, full, 2)
	files, same := make([]Entry, 9), make([]Answer, 9)
	for i := range files {
		files[i] = Entry{Kind: File, Path: strconv.Itoa(i), BlockLog: 16}
		same[i] = Answer{Index: uint64(i), Verdict: Same}
	}
	long := make([]Answer, listsKept+1)
	for i := range long {
		long[i] = Answer{Index: uint64(i), Verdict: Skip}
	}
	all := []Message{
		&Entries{Entries: files[:1]}, full[0], &Entries{First: 9, Entries: files}, full[0], &Entries{Entries: files[:2]},
		&Answers{same}, full[1], &Answers{same}, &Answers{long}, full[1], &Answers{same[:3]},
	}
	var stream []byte
	for _, m := range all {
		stream = Append(stream, m)
	}
	r := NewReader(bytes.NewReader(stream), MaxMessage)
	r.Reuse()
	for _, want := range all {
		got, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.LessOrEqual(t, cap(r.room.answers), listsKept, "a peer does not make it keep more")
}

// TestNewerPeer appends fields that this release does not know to every message.
func TestNewerPeer(t *testing.T) {
	for _, want := range examples() {
		b := Append(nil, want)
		got, err := Decode(want.Type(), append(b[headerLen:], 1, 2, 3))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestTruncated(t *testing.T) {
	for _, m := range examples() {
		b := Append(nil, m)
		for n := 1; n < len(b); n++ {
			_, err := NewReader(bytes.NewReader(b[:n]), MaxMessage).Next()
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
	}
}

func TestHostile(t *testing.T) {
	huge := strings.Repeat("\xff", 9) + "\x01"
	for name, c := range map[string]struct {
		kind Type
		body string
	}{
		"list longer than its message": {TypeWritten, huge},
		"string beyond its message":    {TypeRefuse, "\x01\x7fab"},
		"overlong varint":              {TypeEndManifest, strings.Repeat("\xff", 11)},
		"overlapping extents":          {TypeResend, "\x01\x02\x05\x03\x06\x01"},
		"empty extent":                 {TypeResend, "\x01\x01\x05\x00"},
		"extent that overflows":        {TypeResend, "\x01\x01" + huge + huge},
		"unknown kind of entry":        {TypeEntries, "\x00\x01\x0a\x00\x01a\x00\x00"},
		"an alias of a folder":         {TypeEntries, "\x00\x01\x02\x00\x01a\x00\x00\x01\x00\x01b\x00"},
		"an alias of no entry":         {TypeEntries, "\x00\x01\x05\x00\x01a\x00\x00\x01\x01\x01b\x00"},
		"an alias without a path":      {TypeEntries, "\x00\x01\x05\x00\x01a\x00\x00\x01\x00\x00\x00"},
		"block size out of range":      {TypeEntries, "\x00\x01\x01\x00\x01a\x00\x00\x02\x00\x00\x05"},
		"unknown verdict":              {TypeAnswers, "\x01\x01\x0a"},
		"no way of delta":              {TypeAnswers, "\x01\x01\x09\x00\x05\x00"},
		"pieces out of place":          {TypePieces, "\x01\x05\x0c\x00"},
		"pieces too small":             {TypePieces, "\x01\x00\x0b\x00"},
		"a chunk of nothing":           {TypeChunks, "\x01\x00\x01\x0012345678"},
		"a chunk too long":             {TypeChunks, "\x01\x00\x01\xff\xff\x7f12345678"},
		"a pick of auto":               {TypePick, "\x01\x03"},
		"attributes beyond the limit":  {TypeEntries, "\x00\x01\x02\x04\x01a\x00\x00\x02\x01a\x00\x01b\x81\x80\x04"},
		"positions out of order":       {TypeExtra, "\x02\x03\x03"},
		"test without end":             {TypeTest, "\x02\x00\x00\x00" + huge},
		"message beyond the limit":     {TypeTest, "\x01\x81\x80\x04\x00\x00\x01"},
		"no port":                      {TypeOpened, "\x00" + strings.Repeat("\x00", 16)},
		"long volley":                  {TypeVolley, strings.Repeat("\x00", 17) + "\x21" + strings.Repeat("\x40", 33) + "\x01"},
		"datagram beyond the limit":    {TypeVolley, strings.Repeat("\x00", 17) + "\x01\xe4\xff\x03\x01"},
		"operation on too many paths":  {TypeOperation, "\x05\x81\x08" + strings.Repeat("\x00", 1100)},
		"operation on a long path":     {TypeOperation, "\x05\x01\x81\x20" + strings.Repeat("x", 4200)},
		"content beyond the limit":     {TypeContent, "\x81\x80\x10" + strings.Repeat("x", MaxContent+1)},
		"size beyond the limit":        {TypeEndEntry, "\x01" + huge + strings.Repeat("\x00", 32)},
	} {
		_, err := Decode(c.kind, []byte(c.body))
		require.ErrorIs(t, err, ErrMalformed, name)
	}
	_, err := NewReader(bytes.NewReader([]byte{byte(TypePing), 0xff, 0xff, 0xff, 0xff}), MaxMessage).Next()
	require.ErrorIs(t, err, ErrMalformed)
}

// headers holds block headers with every field set.
func headers() []BlockHeader {
	return []BlockHeader{
		{End: true},
		{Index: 1 << 60, Block: 1 << 40, Length: 1 << 20, Digest: [32]byte{7}},
		{Whole: true, Index: 1, Length: 5},
		{Sparse: true, Length: 4, Raw: 1 << 20},
		{Patch: true, Length: 4},
	}
}

func TestBlockHeader(t *testing.T) {
	var b [BlockHeaderLen]byte
	for _, want := range headers() {
		want.Put(b[:])
		got, err := ParseBlockHeader(b[:])
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, bad := range []BlockHeader{{Length: 1<<20 + 1}, {Block: -1}, {Block: 1 << 48}, {Length: 5, Raw: 5}, {Length: 5, Raw: 1<<20 + 1}} {
		bad.Put(b[:])
		_, err := ParseBlockHeader(b[:])
		require.ErrorIs(t, err, ErrMalformed)
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range examples() {
		f.Add(Append(nil, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b), MaxMessage)
		for {
			m, err := r.Next()
			if err != nil {
				require.True(t, errors.Is(err, ErrMalformed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF))
				return
			}
			again, err := Decode(m.Type(), Append(nil, m)[headerLen:])
			require.NoError(t, err)
			require.Equal(t, m, again)
		}
	})
}

func FuzzBlockHeader(f *testing.F) {
	var b [BlockHeaderLen]byte
	(&BlockHeader{Index: 1, Block: 2, Length: 3}).Put(b[:])
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseBlockHeader(b)
		if err != nil {
			return
		}
		var again [BlockHeaderLen]byte
		h.Put(again[:])
		got, err := ParseBlockHeader(again[:])
		require.NoError(t, err)
		require.Equal(t, h, got)
	})
}

// TestDecodedSize: a message of 1 MiB takes no more than a few times as much in memory, whatever
// its lists say. Each cost covers what it stands for.
func TestDecodedSize(t *testing.T) {
	require.GreaterOrEqual(t, costNumber, int(unsafe.Sizeof(Extent{})))
	require.GreaterOrEqual(t, costNumber, int(unsafe.Sizeof(BlockID{})))
	require.GreaterOrEqual(t, costNumber, int(unsafe.Sizeof(Chunk{})))
	require.GreaterOrEqual(t, costString, int(unsafe.Sizeof("")))
	require.GreaterOrEqual(t, costString, int(unsafe.Sizeof(Value{})))
	require.GreaterOrEqual(t, costDigest, int(unsafe.Sizeof(EntryDigest{})))
	require.GreaterOrEqual(t, costAttribute, int(unsafe.Sizeof(Xattr{}))+2*16)
	require.GreaterOrEqual(t, costAnswer, int(unsafe.Sizeof(Answer{})))
	require.GreaterOrEqual(t, costEntry, int(unsafe.Sizeof(Entry{})))

	list := func(before []byte, element ...byte) []byte {
		n := (MaxMessage - len(before) - 4) / len(element)
		return append(binary.AppendUvarint(before, uint64(n)), bytes.Repeat(element, n)...)
	}
	var extents []Extent // as scattered as blocks can be, in a message that is full
	for start := int64(0); len(extents) < 1<<18-1<<13; start += 2 {
		extents = append(extents, Extent{start, 1})
	}
	xattrs := append([]byte{1}, binary.AppendUvarint([]byte{byte(Dir), entryXattrs, 0, 0, 0}, 5000)...)
	xattrs = append([]byte{0}, append(xattrs, bytes.Repeat([]byte{1, 'x', 0}, 5000)...)...)
	scattered := Append(nil, &Placed{Entries: extents})[headerLen:]
	require.Greater(t, len(scattered), MaxMessage*9/10)
	for name, test := range map[string]struct {
		kind Type
		body []byte
		want string // the error, "" for none
	}{
		"answers":                              {TypeAnswers, list(nil, 0, byte(Same)), "too much memory"},
		"failures":                             {TypeAnswers, list(nil, 0, byte(Fail), 0, 0), "too much memory"},
		"entries":                              {TypeEntries, list([]byte{0}, byte(Dir), 0, 0, 0, 0), "too much memory"},
		"digests":                              {TypeDigests, list(nil, make([]byte, 33)...), ""},
		"acknowledgements":                     {TypeWritten, list(nil, 0, 0), "too much memory"},
		"many acknowledgements":                {TypeWritten, append(binary.AppendUvarint(nil, 1<<17), make([]byte, 1<<18)...), ""},
		"extents of a large file":              {TypePlaced, scattered, ""},
		"numbers":                              {TypeExtra, list(nil, 0), "too much memory"},
		"a stream's numbers":                   {TypeStreams, list([]byte{0}, 0), "too much memory"},
		"attributes of an entry":               {TypeEntries, xattrs, ""},
		"many entries":                         {TypeEntries, append(binary.AppendUvarint([]byte{0}, 8192), bytes.Repeat([]byte{byte(Dir), 0, 0, 0, 0}, 8192)...), ""},
		"as many answers as entries under way": {TypeAnswers, append(binary.AppendUvarint(nil, 16384), bytes.Repeat([]byte{0, byte(Same)}, 16384)...), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			m, err := Decode(test.kind, test.body)
			runtime.ReadMemStats(&after)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*MaxDecoded), "allocated")
			runtime.KeepAlive(m)
		})
	}
}
