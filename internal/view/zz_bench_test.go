package view
import ("testing";"time")
func BenchmarkDaemon(b *testing.B) {
	f := newFarm(5000, byName)
	for i := range 5000 { if i%2==0 { f.has("old", nil, i) } else { f.has("new", nil, i) } }
	c := f.see()
	b.Run("rollouts", func(b *testing.B){ for b.Loop() { c.Rollouts() } })
	b.Run("why", func(b *testing.B){ for b.Loop() { c.Why("n2500") } })
	b.Run("preview", func(b *testing.B){ for b.Loop() { c.PreviewDaemonSet(f.eds, Supposition{Turn: time.Minute}) } })
}
