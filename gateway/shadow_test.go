package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// TestShadow: another router is asked the same, its answer is compared, and
// nothing waits for it.
func TestShadow(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	answers, asked := make(chan string), make(chan string, 16)
	url := newServer(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked <- string(body) + r.Header.Get("Authorization")
		switch answer := <-answers; {
		case strings.HasPrefix(answer, "{"):
			io.WriteString(rw, answer)
		case answer != "":
			rw.Header().Set("X-Gateway-Destination-Endpoint", answer)
		default:
			rw.WriteHeader(500)
		}
	}))
	r := newRig(t, Config{Shadow: ShadowConfig{URL: url, MaxInFlight: 1, MaxBodyBytes: 1000}}, w)
	count := func(how string) float64 {
		return testkit.Metric(t, r.metrics(), "rhizome_gateway_shadow_total", fmt.Sprintf("agreement=%q", how))
	}
	endpoint := strings.TrimPrefix(w.URL(), "http://")
	for i, c := range []struct{ answer, how string }{
		{endpoint, shadowSame}, {"10.0.0.1:80", shadowOther}, {`{"worker":"` + w.URL() + `/"}`, shadowSame}, {"", shadowFailed}, {`{"x":1}`, shadowFailed},
	} {
		before := count(c.how)
		if a := r.post(chat, plainBody, "Authorization: Bearer canary"); a.status != 200 { // while the other one has not answered
			t.Fatalf("%+v", a)
		}
		if got := <-asked; got != plainBody {
			t.Errorf("the other router was asked %q", got)
		}
		if i == 0 {
			r.post(chat, plainBody) // one question at a time
			r.post(chat, strings.Replace(plainBody, "hi", strings.Repeat("long", 500), 1))
		}
		answers <- c.answer
		r.g.shadow.asking.Wait()
		if count(c.how) != before+1 {
			t.Errorf("answer %q was not counted as %s", c.answer, c.how)
		}
	}
	if n := count(shadowSkipped); n != 2 {
		t.Errorf("%v questions were left out", n)
	}
	// An open question ends with the gateway.
	r.post(chat, plainBody)
	<-asked
	r.g.Close()
	close(answers)
	if a := r.post(chat, plainBody); a.status != 200 || count(shadowSkipped) != 3 {
		t.Errorf("after Close: %+v", a)
	}
}

func TestShadowConfigs(t *testing.T) {
	for want, c := range map[string]ShadowConfig{
		"":             {URL: "http://h:1/x"},
		"shadow.url":   {URL: "ftp://h"},
		"shadow.share": {URL: "http://h", Share: 2},
		"shadow: time": {URL: "http://h", Timeout: -1},
	} {
		err := Config{Shadow: c}.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v gave %v", c, err)
		}
	}
}
