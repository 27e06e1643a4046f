;; attack: `score` never returns.
;; expect: score -> out-of-fuel

;; in score:
(loop $again (br $again)) (unreachable)
