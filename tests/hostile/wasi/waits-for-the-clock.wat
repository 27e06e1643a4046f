;; attack: Waits until the clock moves, which it does not within a call.
;; expect: score -> out-of-fuel
;; imports: wasi

;; in score:
(loop $again (br_if $again (i64.eq (call $now) (call $now)))) (unreachable)
