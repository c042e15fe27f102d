package hint

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestOf(t *testing.T) {
	other := errors.New("x")
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{other, ""},
		{&fxfer.Error{Err: other}, ""},
		{&fxfer.Error{Err: other, Advice: fxfer.AdviceResume}, "the same command resumes"},
		{fmt.Errorf("w: %w", &fxfer.Error{Err: &fxfer.Error{Err: other, Advice: fxfer.AdviceInvitation}}), "fxfer serve --invite"},
		{&wire.Error{Code: wire.CodeBusy}, "--retry-for"},
		{&wire.Error{Code: wire.CodeRight}, ""},
		{&wire.Error{Code: wire.CodeRight, Remote: true}, "fxfer ls"},
		{&wire.Error{Code: wire.CodeNotFound}, ""},
		{&fxfer.Error{Err: &wire.Error{Code: wire.CodeNotFound, Remote: true}}, "fxfer ls"},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, "firewall"},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, ""},
		{fmt.Errorf("w: %w", fxfer.ErrSnapshotExists), "wait a second"},
		{&fxfer.Error{Err: &identity.UnknownServerError{}}, "--pin"},
		{&fxfer.Error{Err: &identity.ServerChangedError{File: "known", Line: 2}}, "delete line 2 of known"},
		{&fxfer.Error{Err: &identity.CertificateError{Problem: "expired", Remedy: "renew it"}}, "renew it"},
	} {
		got := Of(c.err)
		require.Contains(t, got, c.want)
		require.Equal(t, c.want == "", got == "", "%v: %s", c.err, got)
	}
}

// TestAll: every kind of advice has words.
func TestAll(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../session/errors.go", nil, 0)
	require.NoError(t, err)
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Advice") {
			found++
			text := strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`)
			require.NotEmpty(t, words[fxfer.Advice(text)], text)
		}
		return true
	})
	require.Len(t, words, found)
}
