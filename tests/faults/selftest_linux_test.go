package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// constants are tables of the assembly for AES-GCM, in words of 4 bytes. A wrong lowest bit in any byte of the first
// words gives wrong results and no crash. The last table is in use with vectors of 32 bytes, too.
var constants = []struct {
	table string
	words []uint32
	first int
	wide  bool // for vectors of 64 bytes only
}{
	{"reverse", slices.Repeat([]uint32{0x0c0d0e0f, 0x08090a0b, 0x04050607, 0x00010203}, 4), 16, true},
	{"lanes", []uint32{7: 1, 11: 2, 15: 3}, 16, true},
	{"modulus32", []uint32{1: 0xc2000000, 5: 0xc2000000, 7: 0}, 2, false},
}

// has reports whether the processor has all features, as the kernel calls them.
func has(t *testing.T, features ...string) bool {
	info, err := os.ReadFile("/proc/cpuinfo")
	require.NoError(t, err)
	flags := strings.Fields(string(info))
	return !slices.ContainsFunc(features, func(f string) bool { return !slices.Contains(flags, f) })
}

// TestSelfTestOfProgram flips one bit of the program on the disk, in the code for AES-GCM. The
// program must neither serve nor connect. With --crypto std it works: nothing uses that code.
func TestSelfTestOfProgram(t *testing.T) {
	t.Parallel()
	if !cpu.X86.HasAVX2 || !has(t, "vaes", "vpclmulqdq") { // package cpu knows the others only with AVX-512
		t.Skip("this processor has no AES on vectors")
	}
	dir := t.TempDir()
	in := func(p string) string { return filepath.Join(dir, p) }
	right, err := os.ReadFile(program)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(in("share"), 0o700))
	require.NoError(t, os.WriteFile(in("file"), bytes.Repeat([]byte("content"), 100_000), 0o600))

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	run := func(env string, args ...string) (string, int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, in("wrong"), args...)
		c.Env = append(os.Environ(), "FXFER_HOME="+in("client"), env)
		out, _ := c.CombinedOutput()
		return string(out), c.ProcessState.ExitCode()
	}
	for _, c := range constants {
		if c.wide && !(cpu.X86.HasAVX512VAES && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasAVX512BW) {
			continue
		}
		wrong := bytes.Clone(right)
		text, err := binary.Append(nil, binary.LittleEndian, c.words)
		require.NoError(t, err)
		require.Equal(t, 1, bytes.Count(right, text), c.table)
		at := bytes.Index(right, text) + rng.IntN(4*c.first)
		wrong[at] ^= 1
		require.NoError(t, os.WriteFile(in("wrong"), wrong, 0o700))
		for _, args := range [][]string{{"ls", "fxfer://127.0.0.1:1/"}, {"serve", "--listen", "127.0.0.1:0", in("share")}} {
			out, code := run("", args...)
			require.Equal(t, 6, code, "%s, byte %d, %v: %s", c.table, at, args, out)
			require.Contains(t, out, "fxfer: error: this program can't encrypt on this machine: self-test of TLS_AES_128_GCM_SHA256: sealed records are wrong\n")
			require.Contains(t, out, "fxfer: hint: --crypto std")
			require.Equal(t, 2, strings.Count(out, "\n"), out)
		}
	}

	server := exec.Command(in("wrong"), "serve", "--crypto", "std", "--listen", "127.0.0.1:0", "--invite", "--name", "127.0.0.1", in("share"))
	server.Env = append(os.Environ(), "FXFER_HOME="+in("server"))
	pipe, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	defer func() {
		_ = server.Process.Signal(unix.SIGTERM)
		require.NoError(t, server.Wait())
	}()
	line := make([]byte, 4096)
	n, err := pipe.Read(line)
	require.NoError(t, err)
	invitation := strings.TrimSpace(string(line[:n]))
	said, code := run("", "send", "--crypto", "std", in("file"), invitation)
	require.Zero(t, code, said)
	share, err := url.Parse(invitation)
	require.NoError(t, err)
	share.User, share.RawQuery, share.Fragment, share.Path = nil, "", "", "/share"
	said, code = run("FXFER_CRYPTO=std", "verify", share.String(), "--against", in("share"))
	require.Zero(t, code, said)
	jobs := "jobs:\n  - name: home\n    mode: mirror\n    sources: [" + in("share") + "]\n    destination: " + share.String() + "/copy\n"
	require.NoError(t, os.WriteFile(in("jobs"), []byte(jobs), 0o600))
	said, code = run("FXFER_CRYPTO=std", "backup", "run", "--file", in("jobs"))
	require.Zero(t, code, said)
	said, code = run("", "backup", "run", "--file", in("jobs"))
	require.Equal(t, 6, code, said)
}
