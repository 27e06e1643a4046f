;; attack: `classify` never returns.
;; expect: classify -> out-of-fuel

;; in classify:
(loop $again (br $again)) (unreachable)
