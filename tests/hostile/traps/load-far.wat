;; attack: Reads at the far end of what an address and its offset can reach.
;; expect: score -> trap

;; in score:
(drop (i64.load offset=0xffffffff (i32.const -1))) (unreachable)
