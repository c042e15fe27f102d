package session

import (
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// TestHostileSelection makes filters of what a client might ask for.
func TestHostileSelection(t *testing.T) {
	for _, s := range []wire.Select{
		{Rules: []string{"["}}, {Rules: []string{""}}, {Rules: []string{"a\x00"}}, {Rules: []string{strings.Repeat("a", 5000)}}, {MaxSize: -1},
	} {
		_, err := FilterOf(&s)
		require.Error(t, err)
	}
}

// TestWritePatiently: a slow reader gets all, and one that stops holds nobody up.
func TestWritePatiently(t *testing.T) {
	for _, pieces := range []int{4, 2} {
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			defer there.Close()
			go func() {
				for range pieces {
					time.Sleep(30 * time.Second)
					_, _ = io.ReadFull(there, make([]byte, writePiece))
				}
			}()
			began := time.Now()
			err := WritePatiently(here, make([]byte, 4*writePiece), 40*time.Second)
			if pieces == 4 {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Equal(t, 100*time.Second, time.Since(began))
		})
	}
}

func TestRequestLength(t *testing.T) {
	m := wire.Hello{Select: wire.Select{Rules: slices.Repeat([]string{"*.o"}, wire.MaxStrings)}}
	require.NoError(t, CheckHello(&m))
	m.Select.Rules = append(m.Select.Rules, "x")
	require.ErrorContains(t, CheckHello(&m), "1025 rules")
	m.Select.Rules = []string{strings.Repeat("x", wire.MaxFirstMessage-helloRoom)}
	require.ErrorContains(t, CheckHello(&m), "the request is too long")
	require.Equal(t, KindUsage, KindOf(CheckHello(&m)))
}
