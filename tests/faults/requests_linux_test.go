package faults

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"math"
	"math/big"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

var requestLabs = flag.Int("request-labs", 0, "labs for TestRequests; 0 skips it")

// TestRequests: the whole matrix of requests has the figures of an independent program on the same
// line, within 5 ms.
func TestRequests(t *testing.T) {
	switch {
	case os.Geteuid() != 0:
		t.Skip("needs root, to run programs as another user on a lab's hosts")
	case *requestLabs == 0:
		t.Skip("-request-labs is 0: each lab takes two minutes")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	for i := range *requestLabs {
		think := []string{"0s", "10ms"}[i%2]
		ours, theirs := requestsIn(t, python, think)
		wrong, least := 0, 0
		for k, way := range ours {
			if d := way.Min - theirs[k].Least; math.Abs(d) > 0.005 {
				least++
			}
			if d := way.Median - theirs[k].Median; math.Abs(d) > 0.005 {
				wrong++
				t.Logf("%+.1f ms: python %+v: %+v", d*1e3, theirs[k], way)
			}
		}
		t.Logf("think %s: of %d ways, %d medians and %d least times differ by more than 5 ms", think, len(ours), wrong, least)
		require.LessOrEqual(t, wrong, len(ours)/100)
	}
}

// pythonTimes are what Python measured of one way, in seconds.
type pythonTimes struct{ Median, Least float64 }

// requestsIn measures requests in a lab: with fxfer, and then with Python, in the same ways and as
// often.
func requestsIn(t *testing.T, python, think string) (ours []probe.Latency, theirs []pythonTimes) {
	t.Helper()
	folder, err := hosts.NewFolder("fxfer-requests-", "home", "tmp", "dst")
	require.NoError(t, err)
	defer func() { require.NoError(t, folder.Remove()) }()
	binary, err := os.ReadFile(program)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(folder.Abs("fxfer"), binary, 0o755))
	script, err := os.ReadFile("testdata/requests.py")
	require.NoError(t, err)
	require.NoError(t, folder.Write("requests.py", string(script)))
	require.NoError(t, folder.Write("certificate.pem", certificate(t)))
	box, err := lab.Start(lab.Link{Rate: 1e9, RTT: 20 * time.Millisecond})
	if errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, box.Close()) }()
	x := hosts.Fxfer{Folder: folder, Server: box.Right, Client: box.Left, Addr: box.Right.Addr(), Port: 7433, Home: "home"}
	require.NoError(t, x.Start(t.Context(), "--share", "dst=dst"))
	command, err := x.Cold("probe", "--json", "--requests", "--think", think, "--time", "50s", x.URL(""))
	require.NoError(t, err)
	cmd := folder.Prepare(t.Context(), command)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var report struct {
		Exchanges []probe.Latency
		Notes     []string
	}
	require.NoError(t, json.Unmarshal(out, &report))
	t.Log(report.Notes)
	require.Len(t, report.Exchanges, 2*len(probe.PerConnection)*len(probe.Sizes)*len(probe.Ways()))
	for i := range report.Exchanges {
		require.NotZero(t, report.Exchanges[i].Count)
		report.Exchanges[i].Histogram = nil
	}

	ways, err := json.Marshal(report.Exchanges)
	require.NoError(t, err)
	run := func(host *lab.Host, role string) *lab.Cmd {
		c := host.Command(t.Context(), python, "requests.py", role, x.Addr.String(), "certificate.pem")
		c.Dir = folder.Path
		c.Stdin, c.Stderr = bytes.NewReader(ways), os.Stderr
		return c
	}
	server := run(box.Right, "server")
	var ready hosts.Output
	server.Stdout = &ready
	require.NoError(t, server.Start())
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	require.Eventually(t, func() bool { return ready.String() != "" }, time.Minute, 10*time.Millisecond)
	out, err = run(box.Left, "client").Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &theirs))
	require.Len(t, theirs, len(report.Exchanges))
	return report.Exchanges, theirs
}

// certificate returns a key and its certificate as PEM.
func certificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ours := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, ours, ours, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}
