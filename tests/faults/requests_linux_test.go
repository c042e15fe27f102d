package faults

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"math"
	"math/big"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

var requestLabs = flag.Int("request-labs", 0, "labs for TestRequests, and as many with time to think; 0 skips it")

// TestRequests: the whole matrix of requests has the figures of an independent program on the same
// line, within 5 ms. Of several labs, the least median of a way counts: a busy machine only adds to
// it.
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
	for _, think := range []string{"0s", "10ms"} {
		ways, ours, theirs := []probe.Latency(nil), []float64(nil), []float64(nil)
		for range *requestLabs {
			undisturbed(t, 10*time.Second, func(t testing.TB) func() { // several labs make up for less
				measured, medians := requestsIn(t, python, think)
				return func() {
					if ways == nil {
						ways = measured
						ours, theirs = slices.Repeat([]float64{math.Inf(1)}, len(ways)), slices.Repeat([]float64{math.Inf(1)}, len(ways))
					}
					for k := range measured {
						if theirs[k] = min(theirs[k], medians[k]); measured[k].Count > 0 { // else its time was over
							ours[k] = min(ours[k], measured[k].Median)
						}
					}
				}
			})
		}
		wrong, largest := 0, 0.0
		for k, way := range ways {
			d := ours[k] - theirs[k]
			largest = max(largest, math.Abs(d))
			if math.Abs(d) > 0.005 {
				wrong++
				way.Histogram = nil
				t.Logf("%+.1f ms, where Python took %.1f ms: %+v", d*1e3, theirs[k]*1e3, way)
			}
		}
		t.Logf("think %s: %d of %d ways differ by more than 5 ms, the largest difference is %.1f ms", think, wrong, len(ways), largest*1e3)
		require.LessOrEqual(t, wrong, len(ways)/100)
	}
}

// requestsIn measures requests in a lab: with fxfer, and then with Python in the same ways. It returns
// the report of the one, and the medians of the other in seconds.
func requestsIn(t testing.TB, python, think string) (ours []probe.Latency, theirs []float64) {
	t.Helper()
	folder, err := hosts.NewFolder("fxfer-requests-", "home", "tmp", "dst")
	require.NoError(t, err)
	defer func() { require.NoError(t, folder.Remove()) }()
	require.NoError(t, folder.Install(t.Context(), program, "fxfer"))
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

// certificate returns a key and its certificate as PEM. The certificate is so large that Python's first
// flight has two segments, as that of fxfer has, whose key exchange is larger (ML-KEM). Their
// acknowledgements enlarge the first window, and 16 KiB just fit into it.
func certificate(t testing.TB) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	large := pkix.Extension{Id: asn1.ObjectIdentifier{2, 999, 1}, Value: make([]byte, 1200)}
	ours := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, ExtraExtensions: []pkix.Extension{large},
	}
	der, err := x509.CreateCertificate(rand.Reader, ours, ours, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}
