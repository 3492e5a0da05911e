package engine

import (
	"math"
	"testing"
)

// FuzzParseModels: any list of models gives names and lengths that can be used,
// or an error.
func FuzzParseModels(f *testing.F) {
	f.Add([]byte(`{"object":"list","data":[{"id":"m","object":"model","max_model_len":4096},{"id":"lora","parent":"m"}]}`))
	f.Add([]byte(`{"data":[{"id":"m","max_model_len":null}]}`))
	f.Add([]byte(`{"data":[{"id":"m","max_model_len":-1}]}`))
	f.Add([]byte(`{"data":[{"id":""}]}`))
	f.Add([]byte(`{"data":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		models, err := parseModels(body)
		if err == nil && len(models) > maxModels {
			t.Fatalf("%d models", len(models))
		}
		for _, m := range models {
			if m.ID == "" || m.MaxModelLen < 0 {
				t.Fatalf("model %+v", m)
			}
		}
	})
}

// FuzzLoads: whatever SGLang's /v1/loads says, what is known afterwards is a
// number that is finite.
func FuzzLoads(f *testing.F) {
	f.Add([]byte(`{"loads":[{"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":1,"num_waiting_uncached_tokens":900,"max_running_requests":64,"token_usage":0.25,"max_total_num_tokens":100000}]}`))
	f.Add([]byte(`{"loads":[{"dp_rank":1,"token_usage":1e308},{"dp_rank":1023}]}`))
	f.Add([]byte(`{"loads":[{"dp_rank":-1}]}`))
	f.Add([]byte(`{"loads":[{"dp_rank":99999999999}]}`))
	f.Add([]byte(`{"loads":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var all Telemetry
		if err := all.addLoads(body); err != nil {
			return
		}
		for rank := range MaxRanks {
			r := all.Rank(rank)
			for _, v := range []Value{r.Running, r.Waiting, r.WaitingTokens, r.MaxSeqs, r.KVUsage, r.HBMTokens} {
				if v.Known && (math.IsNaN(v.Value) || math.IsInf(v.Value, 0) || v.Value < 0) {
					t.Fatalf("rank %d: %+v", rank, r)
				}
			}
		}
	})
}
