package tlsrecord

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// TestTrafficKeys uses the trace in RFC 8448 section 3.
func TestTrafficKeys(t *testing.T) {
	s, err := suiteOf(tls.TLS_AES_128_GCM_SHA256)
	require.NoError(t, err)
	tests := []struct{ secret, key, iv string }{
		{
			"a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
			"9f02283b6c9c07efc26bb9f2ac92e356", "cf782b88dd83549aadf1e984",
		},
		{
			"9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
			"17422dda596ed5d9acd890e3c63f5051", "5b78923dee08579033e523d9",
		},
	}
	for _, test := range tests {
		key, err := expandLabel(s, unhex(t, test.secret), "key", s.keyLen)
		require.NoError(t, err)
		require.Equal(t, test.key, hex.EncodeToString(key))
		iv, err := expandLabel(s, unhex(t, test.secret), "iv", 12)
		require.NoError(t, err)
		require.Equal(t, test.iv, hex.EncodeToString(iv))
	}
}

func TestSuites(t *testing.T) {
	for id, size := range map[uint16]int{
		tls.TLS_AES_128_GCM_SHA256: sha256.Size,
		tls.TLS_AES_256_GCM_SHA384: sha512.Size384,

		tls.TLS_CHACHA20_POLY1305_SHA256: sha256.Size,
	} {
		s, err := suiteOf(id)
		require.NoError(t, err)
		require.Equal(t, size, s.hash().Size())
	}
	_, err := suiteOf(tls.TLS_RSA_WITH_AES_128_CBC_SHA)
	require.ErrorContains(t, err, "TLS_RSA_WITH_AES_128_CBC_SHA")
}

// ends returns a writer whose records the reader takes from src.
func ends(t testing.TB, dst io.Writer, src io.Reader) (*writer, *reader) {
	t.Helper()
	s, err := suiteOf(tls.TLS_AES_128_GCM_SHA256)
	require.NoError(t, err)
	secret := bytes.Repeat([]byte{7}, sha256.Size)
	var size atomic.Int64
	size.Store(smallBuffer)
	e := &writer{dst: dst, size: &size, updateAfter: updateAfter, answer: new(atomic.Bool)}
	d := &reader{src: src, size: &size, answer: new(atomic.Bool)}
	require.NoError(t, e.setSecret(s, secret))
	require.NoError(t, d.setSecret(s, secret))
	return e, d
}

func TestRecordsRoundTrip(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, piece := range []func(io.Reader) io.Reader{nil, iotest.HalfReader, iotest.OneByteReader} {
		var wire, want bytes.Buffer
		var src io.Reader = &wire
		if piece != nil {
			src = piece(src)
		}
		e, d := ends(t, &wire, src)
		e.updateAfter = 5
		for range 15 {
			a, b := make([]byte, r.IntN(100)), make([]byte, r.IntN(60_000))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			lent := bytes.Clone(b)
			n, err := e.write(a, lent, r.IntN(2) == 0)
			require.NoError(t, err)
			require.Equal(t, len(a)+len(b), n)
			require.Equal(t, b, lent)
			want.Write(a)
			want.Write(b)
		}
		require.NoError(t, e.alert(alertCloseNotify))
		var got bytes.Buffer
		for {
			p := make([]byte, 1+r.IntN(40_000))
			n, err := d.Read(p)
			got.Write(p[:n])
			if err != nil {
				require.Equal(t, io.EOF, err)
				break
			}
		}
		require.True(t, bytes.Equal(want.Bytes(), got.Bytes()))
	}
}

// TestOneSystemCall: a write that fits the buffer takes one system call.
func TestOneSystemCall(t *testing.T) {
	var calls countingWriter
	e, _ := ends(t, &calls, nil)
	e.size.Store(bulkBuffer)
	_, err := e.write(make([]byte, 64), make([]byte, 3*maxPlain), true)
	require.NoError(t, err)
	require.Equal(t, 1, calls.n)
	_, err = e.write(nil, make([]byte, bulkBuffer), true)
	require.NoError(t, err)
	require.Equal(t, 2, calls.n-1, "a bulk buffer and its overhead take two")
	_, err = e.write(nil, nil, false)
	require.NoError(t, err)
	require.Equal(t, 3, calls.n)
}

type countingWriter struct{ n int }

func (w *countingWriter) Write(p []byte) (int, error) {
	w.n++
	return len(p), nil
}

// A reader never waits for more than what is sure to come: the rest of a record, and more where somebody says so.
func TestReadRestWaitsForMuch(t *testing.T) {
	var wire bytes.Buffer
	e, d := ends(t, &wire, iotest.HalfReader(&wire))
	e.size.Store(bulkBuffer)
	d.size.Store(bulkBuffer)
	most, total := 0, 1<<20
	d.await = func(n int) {
		require.LessOrEqual(t, n, max(1, wire.Len()))
		most = max(most, n)
	}
	for _, sure := range []bool{false, true} {
		_, err := e.write(nil, make([]byte, total), true)
		require.NoError(t, err)
		most = 0
		p := make([]byte, total)
		for at := 0; at < total; {
			n, err := d.read(p[at:], sure)
			require.NoError(t, err)
			at += n
		}
		if sure {
			require.Greater(t, most, bulkBuffer/2)
		} else {
			require.Greater(t, most, maxRecord/4)
			require.LessOrEqual(t, most, maxRecord)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	var wire bytes.Buffer
	e, d := ends(t, &wire, &wire)
	payload, got := make([]byte, 1<<20), make([]byte, 1<<20)
	move := func() {
		if _, err := e.write(nil, payload, true); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(d, got); err != nil {
			t.Fatal(err)
		}
	}
	move()
	require.LessOrEqual(t, testing.AllocsPerRun(10, move), 1.0)
}

func TestWriteErrorLasts(t *testing.T) {
	broken := errors.New("broken")
	e, _ := ends(t, iotest.TruncateWriter(io.Discard, 0), nil)
	e.dst = errWriter{broken}
	n, err := e.write(nil, []byte("x"), false)
	require.Zero(t, n)
	require.ErrorIs(t, err, broken)
	e.dst = io.Discard
	_, err = e.write(nil, []byte("x"), false)
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, e.alert(alertCloseNotify), broken)
}

type errWriter struct{ err error }

func (w errWriter) Write([]byte) (int, error) { return 0, w.err }

// TestReadErrorPasses: a temporary error of the socket, such as a deadline, loses nothing.
func TestReadErrorPasses(t *testing.T) {
	var wire bytes.Buffer
	e, d := ends(t, &wire, nil)
	_, err := e.write(nil, []byte("hello"), false)
	require.NoError(t, err)
	d.src = iotest.TimeoutReader(iotest.OneByteReader(&wire))
	p := make([]byte, 10)
	_, err = d.Read(p)
	require.Equal(t, iotest.ErrTimeout, err)
	n, err := d.Read(p)
	require.NoError(t, err)
	require.Equal(t, "hello", string(p[:n]))
}

func TestKeyUpdateIsAnswered(t *testing.T) {
	var there, back bytes.Buffer
	e, d := ends(t, &there, &there)
	answer, back2 := ends(t, &back, &back)
	answer.answer = d.answer
	require.NoError(t, e.control(keyUpdateType, 0, 0, 1, 1, recordHandshake))
	require.NoError(t, e.flush())
	require.NoError(t, e.update())
	_, err := e.write(nil, []byte("new key"), false)
	require.NoError(t, err)
	p := make([]byte, 100)
	n, err := d.Read(p)
	require.NoError(t, err)
	require.Equal(t, "new key", string(p[:n]))

	before := answer.secret
	_, err = answer.write(nil, []byte("also new"), false)
	require.NoError(t, err)
	require.NotEqual(t, before, answer.secret)
	n, err = back2.Read(p)
	require.NoError(t, err)
	require.Equal(t, "also new", string(p[:n]))
	require.Equal(t, answer.secret, back2.secret)
	require.False(t, back2.answer.Load(), "an answer asks for none")
}

func TestHostileRecords(t *testing.T) {
	sealed := func(inner ...byte) []byte {
		var wire bytes.Buffer
		e, _ := ends(t, &wire, nil)
		require.NoError(t, e.control(inner...))
		require.NoError(t, e.flush())
		return wire.Bytes()
	}
	repeated := func(n int, inner ...byte) []byte {
		var wire bytes.Buffer
		e, _ := ends(t, &wire, nil)
		for range n {
			require.NoError(t, e.control(inner...))
		}
		require.NoError(t, e.flush())
		return wire.Bytes()
	}
	altered := func(b []byte, at int) []byte {
		b[at] ^= 1
		return b
	}
	tests := []struct {
		name  string
		wire  []byte
		alert int // -1: none is sent
		err   string
	}{
		{"nothing", nil, -1, "unexpected EOF"},
		{"half a header", []byte{23, 3, 3}, -1, "unexpected EOF"},
		{"half a record", sealed('x', recordApplication)[:20], -1, "unexpected EOF"},
		{"record in clear", []byte{22, 3, 3, 0, 1, 0}, alertUnexpectedMessage, "type 22"},
		{"change cipher spec", []byte{20, 3, 3, 0, 1, 1}, alertUnexpectedMessage, "type 20"},
		{"oversize", []byte{23, 3, 3, 0x40, 18}, alertRecordOverflow, "16402 bytes"},
		{"largest length", []byte{23, 3, 3, 0xff, 0xff}, alertRecordOverflow, "65535 bytes"},
		{"no length", []byte{23, 3, 3, 0, 0}, alertDecodeError, "0 bytes"},
		{"less than a tag and a type", []byte{23, 3, 3, 0, 16}, alertDecodeError, "16 bytes"},
		{"altered content", altered(sealed('x', recordApplication), 6), alertBadRecordMAC, "altered"},
		{"altered version", altered(sealed('x', recordApplication), 1), alertBadRecordMAC, "altered"},
		{"no inner type", sealed(0, 0, 0), alertUnexpectedMessage, "without a type"},
		{"unknown inner type", sealed('x', 99), alertUnexpectedMessage, "inner type 99"},
		{"inner change cipher spec", sealed(1, 20), alertUnexpectedMessage, "inner type 20"},
		{"short alert", sealed(2, recordAlert), alertDecodeError, "alert of 1 bytes"},
		{"fatal alert", sealed(2, alertBadRecordMAC, recordAlert), -1, "bad record MAC"},
		{"close", sealed(1, alertCloseNotify, recordAlert), -1, "EOF"},
		{"close and padding", sealed(1, alertCloseNotify, recordAlert, 0, 0), -1, "EOF"},
		{"ticket", sealed(4, 0, 0, 1, 0, recordHandshake), alertUnexpectedMessage, "handshake message"},
		{"empty handshake message", sealed(recordHandshake), alertUnexpectedMessage, "handshake message"},
		{"two key updates in one", sealed(24, 0, 0, 1, 0, 24, 0, 0, 1, 0, recordHandshake), alertUnexpectedMessage, "handshake message"},
		{"key update request of 2", sealed(24, 0, 0, 1, 2, recordHandshake), alertIllegalParameter, "request of 2"},
		{"old key after a key update", repeated(2, 24, 0, 0, 1, 0, recordHandshake), alertBadRecordMAC, "altered"},
		{"some empty records", append(repeated(maxUseless, recordApplication), 22, 0, 0, 0, 0), alertUnexpectedMessage, "type 22"},
		{"empty records without end", repeated(100, recordApplication), alertUnexpectedMessage, errTooManyUseless.Error()},
		{"warnings without end", repeated(100, 1, alertUserCanceled, recordAlert), alertUnexpectedMessage, errTooManyUseless.Error()},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, d := ends(t, nil, bytes.NewReader(test.wire))
			got, err := io.ReadAll(readerOnly{d})
			require.Empty(t, got)
			if test.err == "EOF" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.err)
			_, again := d.Read(make([]byte, 1))
			require.Equal(t, err, again, "it must last")
			var bad *alertError
			if test.alert < 0 {
				require.NotErrorAs(t, err, &bad)
				return
			}
			require.ErrorAs(t, err, &bad)
			require.EqualValues(t, test.alert, bad.alert)
		})
	}
}

// TestKeyUpdatesBetweenBytes: updates with a byte of content between them are not useless records.
// Their number is bounded by the content.
func TestKeyUpdatesBetweenBytes(t *testing.T) {
	var wire bytes.Buffer
	e, d := ends(t, &wire, &wire)
	read := func(p []byte) error {
		_, err := io.ReadFull(readerOnly{d}, p)
		return err
	}
	round := func() error {
		require.NoError(t, e.keyUpdate())
		_, err := e.write(nil, []byte{'x'}, false)
		require.NoError(t, err)
		return read(make([]byte, 1))
	}
	for range maxUpdates {
		require.NoError(t, round())
	}
	_, err := e.write(nil, make([]byte, 2*contentPerUpdate), true)
	require.NoError(t, err)
	require.NoError(t, read(make([]byte, 2*contentPerUpdate)))
	require.NoError(t, round(), "the content pays for two")
	require.NoError(t, round())
	err = round()
	var bad *alertError
	require.ErrorAs(t, err, &bad)
	require.ErrorIs(t, bad.err, errTooManyUpdates)
	require.EqualValues(t, alertUnexpectedMessage, bad.alert)
}

type readerOnly struct{ io.Reader }

// FuzzRecordReader feeds any bytes to a reader with keys, behind a valid record of plain bytes.
func FuzzRecordReader(f *testing.F) {
	f.Add([]byte{23, 3, 3, 0, 17}, uint16(5), uint16(100))
	f.Add([]byte{23, 3, 3, 0xff, 0xff, 1}, uint16(1), uint16(1))
	f.Add([]byte{}, uint16(40_000), uint16(20_000))
	f.Fuzz(func(t *testing.T, hostile []byte, plain, room uint16) {
		var wire bytes.Buffer
		e, d := ends(t, &wire, &wire)
		_, err := e.write(nil, make([]byte, plain), true)
		require.NoError(t, err)
		wire.Write(hostile)
		p := make([]byte, int(room)+1)
		total := 0
		for {
			n, err := d.Read(p)
			total += n
			if err != nil {
				require.Equal(t, int(plain), total, "nothing unsealed may be read, nothing sealed lost")
				require.NotEqual(t, io.EOF, err, "only the peer's key can end the stream")
				break
			}
			require.NotZero(t, n)
		}
		require.LessOrEqual(t, len(d.buf), smallBuffer)
	})
}

// FuzzInnerRecords: a peer with the keys sends whatever it likes. script is a list of records, each
// a length and its inner bytes.
func FuzzInnerRecords(f *testing.F) {
	f.Add([]byte{2, 'x', 23, 6, 24, 0, 0, 1, 0, 22, 3, 1, 0, 21}, uint16(10))
	f.Add([]byte{1, 23, 1, 23, 3, 0, 0, 0}, uint16(1))
	f.Fuzz(func(t *testing.T, script []byte, room uint16) {
		var wire, want bytes.Buffer
		e, d := ends(t, &wire, &wire)
		for len(script) > 0 {
			n := min(int(script[0]), len(script)-1)
			inner := script[1 : 1+n]
			script = script[1+n:]
			if n == 0 {
				continue // seal can't make a record without a type
			}
			require.NoError(t, e.control(inner...))
			switch unpadded := bytes.TrimRight(inner, "\x00"); {
			case bytes.HasSuffix(unpadded, []byte{recordApplication}):
				want.Write(unpadded[:len(unpadded)-1])
			case len(unpadded) == 6 && unpadded[0] == keyUpdateType:
				require.NoError(t, e.update())
			}
		}
		require.NoError(t, e.flush())
		var got bytes.Buffer
		p := make([]byte, int(room)+1)
		for {
			n, err := d.Read(p)
			got.Write(p[:n])
			if err != nil {
				break
			}
		}
		require.True(t, bytes.HasPrefix(want.Bytes(), got.Bytes()))
	})
}
