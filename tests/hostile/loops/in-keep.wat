;; attack: `keep` never returns.
;; expect: keep -> out-of-fuel

;; in keep:
(loop $again (br $again)) (unreachable)
