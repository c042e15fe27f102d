package tlsrecord

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// SelfTest seals and opens known records by the code that Conns use on this processor. It returns
// an error if a result is wrong: then this process must not make a Conn. The work is done once.
var SelfTest = sync.OnceValue(func() error { return selfTest(suiteOf) })

// knownRecords are, for each suite, the SHA-256 digest of two records of selfTestMessage, each under
// a key of its own. Tests compute them with the standard library alone.
var knownRecords = []struct {
	suite  uint16
	digest string
}{
	{tls.TLS_AES_128_GCM_SHA256, "c22125da8ae933c3bcb932e1a93578643c7c926dfe73307a5efb5ee309187c92"},
	{tls.TLS_AES_256_GCM_SHA384, "7db670c5c2c908dd534486788f15309091a8a9183afb61a04d07b8dc76b42c1a"},
	{tls.TLS_CHACHA20_POLY1305_SHA256, "066de5287ff4dbcc388c601391f29823cdfe7e185f84159e9bd99049247b6303"},
}

// selfTestMessage is long enough for every loop of the assembly, and ends in the middle of a block.
var selfTestMessage = func() []byte {
	p := make([]byte, 2100)
	for i := range p {
		p[i] = byte(i * i >> 3)
	}
	return p
}()

func selfTest(suiteOf func(uint16) (suite, error)) error {
	for _, known := range knownRecords {
		s, err := suiteOf(known.suite)
		if err == nil {
			err = checkRecords(s, known.digest)
		}
		if err != nil {
			return fmt.Errorf("self-test of %s: %w", tls.CipherSuiteName(known.suite), err)
		}
	}
	return nil
}

// checkRecords compares records with their known digest, opens them, and opens them with a wrong
// bit.
func checkRecords(s suite, digest string) error {
	var wire bytes.Buffer
	e, d, err := selfTestEnds(s, &wire)
	if err != nil {
		return err
	}
	for range 2 {
		if _, err := e.write(nil, selfTestMessage, false); err != nil {
			return err
		}
		e.answer.Store(true) // a key update comes before the next record
	}
	sealed := bytes.Clone(wire.Bytes())
	if sum := sha256.Sum256(sealed); hex.EncodeToString(sum[:]) != digest {
		return errors.New("sealed records are wrong")
	}
	p := make([]byte, 2*len(selfTestMessage))
	for range 2 {
		n, err := d.Read(p[:len(selfTestMessage)])
		if err != nil {
			return err
		}
		if !bytes.Equal(p[:n], selfTestMessage) {
			return errors.New("opened records are wrong")
		}
	}
	for _, at := range []int{headerLen, headerLen + len(selfTestMessage) + 1 + tagLen - 1} { // content and tag
		_, d, err := selfTestEnds(s, &wire)
		if err != nil {
			return err
		}
		wire.Reset()
		sealed[at] ^= 1
		wire.Write(sealed)
		sealed[at] ^= 1
		if n, err := d.Read(p); n > 0 || err == nil {
			return errors.New("an altered record is accepted")
		}
	}
	return nil
}

// selfTestEnds returns a writer to wire and a reader from it with the same keys.
func selfTestEnds(s suite, wire *bytes.Buffer) (*writer, *reader, error) {
	secret := bytes.Repeat([]byte("secret"), s.hash().Size()/6+1)[:s.hash().Size()]
	var size atomic.Int64
	size.Store(smallBuffer)
	e := &writer{dst: wire, size: &size, answer: new(atomic.Bool), updateAfter: updateAfter}
	d := &reader{src: wire, size: &size, answer: new(atomic.Bool)}
	return e, d, errors.Join(e.setSecret(s, secret), d.setSecret(s, secret))
}
