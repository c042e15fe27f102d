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

var requestLabs = flag.Int("request-labs", 0, "labs for TestRequests at most, and as many with time to think; 0 skips it")

// near is how much a way of fxfer and of Python may differ, in seconds.
const near = 0.005

// TestRequests: the whole matrix of requests has the figures of an independent program on the same
// line, within 5 ms. A busy machine only adds to a median, on either side, so the least of several
// counts. It may not hide a wait of fxfer or of Python: that comes in each of them.
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
		var r requests
		for n := range *requestLabs {
			undisturbed(t, 10*time.Second, func(t testing.TB) func() { // several labs make up for less
				return r.measure(t, python, think)
			})
			wrong, largest := 0, 0.0
			for k, way := range r.ways {
				d := r.ours[k] - r.theirs[k]
				largest = max(largest, math.Abs(d))
				if math.Abs(d) > near {
					wrong++
					way.Histogram = nil
					t.Logf("%+.1f ms, where Python took %.1f ms: %+v", d*1e3, r.theirs[k]*1e3, way)
				}
			}
			t.Logf("think %s, %d labs: %d of %d ways differ by more than 5 ms, the largest difference is %.1f ms; Python measured %d of them alone",
				think, n+1, wrong, len(r.ways), largest*1e3, r.again)
			if wrong == 0 {
				break
			}
			if n+1 == *requestLabs {
				require.LessOrEqual(t, wrong, len(r.ways)/100)
			}
		}
	}
}

// requests has the least medians of all labs, in seconds.
type requests struct {
	ways         []probe.Latency
	ours, theirs []float64
	again        int // ways that Python measured once more, one at a time
}

// measure measures requests in a lab: with fxfer, and then with Python in the same ways, eight of
// them at a time. They share the processors, so Python repeats alone those in which it was slower than
// fxfer. What measure returns counts the figures.
func (r *requests) measure(t testing.TB, python, think string) (count func()) {
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
	run := func(host *lab.Host, ways any, role, atOnce string) *lab.Cmd {
		input, err := json.Marshal(ways)
		require.NoError(t, err)
		c := host.Command(t.Context(), python, "requests.py", role, x.Addr.String(), "certificate.pem", atOnce)
		c.Dir = folder.Path
		c.Stdin, c.Stderr = bytes.NewReader(input), os.Stderr
		return c
	}
	server := run(box.Right, report.Exchanges, "server", "1")
	var ready hosts.Output
	server.Stdout = &ready
	require.NoError(t, server.Start())
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	require.Eventually(t, func() bool { return ready.String() != "" }, time.Minute, 10*time.Millisecond)
	client := func(ways []*probe.Latency, atOnce string) (medians []*float64) {
		out, err := run(box.Left, ways, "client", atOnce).Output()
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(out, &medians))
		require.Len(t, medians, len(ways))
		return medians
	}
	ways := make([]*probe.Latency, len(report.Exchanges))
	for k := range ways {
		ways[k] = &report.Exchanges[k]
	}
	together := client(ways, "8")
	again := 0
	for k, way := range ways {
		if way.Count > 0 && *together[k] > way.Median+near {
			again++
		} else {
			ways[k] = nil
		}
	}
	alone := client(ways, "1")
	return func() {
		r.ways, r.again = report.Exchanges, r.again+again
		if r.ours == nil {
			r.ours, r.theirs = slices.Repeat([]float64{math.Inf(1)}, len(ways)), slices.Repeat([]float64{math.Inf(1)}, len(ways))
		}
		for k, way := range r.ways {
			if way.Count > 0 { // else its time was over
				r.ours[k] = min(r.ours[k], way.Median)
			}
			r.theirs[k] = min(r.theirs[k], *together[k])
			if alone[k] != nil {
				r.theirs[k] = min(r.theirs[k], *alone[k])
			}
		}
	}
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
