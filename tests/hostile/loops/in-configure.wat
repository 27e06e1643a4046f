;; attack: `configure` never returns.
;; expect: configure -> out-of-fuel

;; in configure:
(loop $again (br $again)) (unreachable)
