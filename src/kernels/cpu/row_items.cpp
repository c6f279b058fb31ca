#include "kernels/cpu/row_items.h"

#include <cstring>

#include "quant/types.h"

namespace cohort::cpu {

void run_row_item(const RowKernels& kernels, const RowItem& item, int64_t row, int64_t rows, StepValues& values) {
  const Op& op = *item.op;
  switch (item.kind) {
    case RowItem::Kind::embed: {
      const auto& embed = std::get<op::Embed>(op.action);
      const Weight& table = *embed.table;
      const auto token = static_cast<size_t>(values.batch().tokens[static_cast<size_t>(row)]);
      float* y = values.floats(item.output, row);
      decode_row(table.type, table.slices[0] + token * row_bytes(table.type, table.cols), y, table.cols);
      if (embed.scale != 1.0F) kernels.elementwise.scale(y, embed.scale, table.cols, y);
      return;
    }
    case RowItem::Kind::rms_norm: {
      const auto& norm = std::get<op::RmsNorm>(op.action);
      kernels.elementwise.rms_norm(values.floats(item.input, row),
                                   norm.weight != nullptr ? norm.weight->values.data() : nullptr, norm.eps, norm.group,
                                   values.place(item.output).width / norm.group, values.floats(item.output, row));
      return;
    }
    case RowItem::Kind::rope: {
      const auto& rope = std::get<op::Rope>(op.action);
      float* y = values.floats(item.output, row);
      std::memcpy(y, values.floats(item.input, row),
                  static_cast<size_t>(values.place(item.output).width) * sizeof(float));
      const auto pairs = static_cast<int64_t>(rope.table->frequencies.size());
      const int64_t at = values.batch().positions[static_cast<size_t>(row)] * pairs;
      kernels.elementwise.rope(y, rope.table->cosines.data() + at, rope.table->sines.data() + at,
                               static_cast<int32_t>(pairs), rope.pairing, rope.heads, rope.head_dim);
      return;
    }
    case RowItem::Kind::add:
      kernels.elementwise.add(values.floats(op.inputs[0], row), values.floats(op.inputs[1], row),
                              values.place(item.output).width, values.floats(item.output, row));
      return;
    case RowItem::Kind::gate:
      kernels.elementwise.gate(std::get<op::Gate>(op.action).activation, values.floats(op.inputs[0], row),
                               values.floats(op.inputs[1], row), values.place(item.output).width,
                               values.floats(item.output, row));
      return;
    case RowItem::Kind::scale: {
      const auto& factors = std::get<op::Scale>(op.action).of(values.in_canvas(row))->values;
      const float* x = values.floats(item.input, row);
      float* y = values.floats(item.output, row);
      if (factors.size() == 1) {
        kernels.elementwise.scale(x, factors[0], values.place(item.output).width, y);
      } else {
        kernels.elementwise.multiply(x, factors.data(), values.place(item.output).width, y);
      }
      return;
    }
    case RowItem::Kind::softcap:
      kernels.elementwise.softcap(values.floats(item.input, row), std::get<op::Softcap>(op.action).cap,
                                  values.place(item.output).width, values.floats(item.output, row));
      return;
    case RowItem::Kind::gather:
      std::memcpy(values.floats(item.output, row),
                  values.floats(item.input, values.batch().sampled_rows[static_cast<size_t>(row)]),
                  static_cast<size_t>(values.place(item.output).width) * sizeof(float));
      return;
    case RowItem::Kind::condition: {
      const int32_t width = values.place(item.output).width;
      const float* e = values.floats(op.inputs[0], row);
      float* y = values.floats(item.output, row);
      if (!values.in_canvas(row)) {
        std::memcpy(y, e, static_cast<size_t>(width) * sizeof(float));
        return;
      }
      kernels.elementwise.add(e, values.floats(op.inputs[1], row), width, y);
      kernels.elementwise.rms_norm(y, nullptr, std::get<op::Condition>(op.action).eps, width, 1, y);
      return;
    }
    case RowItem::Kind::append: {
      const SequenceRows& sequence = values.batch().sequences[static_cast<size_t>(values.sequence_of(row))];
      const auto call = make_attention_call(std::get<op::Attend>(op.action), values.batch(), *kernels.cache, nullptr,
                                            nullptr, nullptr);
      kernels.attention.append(call, sequence, static_cast<int32_t>(row) - sequence.first_row, 1,
                               values.floats(op.inputs[1], 0), values.floats(op.inputs[2], 0));
      return;
    }
    case RowItem::Kind::quantise:
      kernels.linear.quantise(values.floats(item.input, row), values.place(item.input).width / kBlockValues,
                              values.quant(item.input).chunk(row / kChunkRows, rows),
                              static_cast<int32_t>(row % kChunkRows));
      return;
    case RowItem::Kind::choose: {
      const auto& route = std::get<op::Route>(op.action);
      Routes& routes = values.routes(item.output);
      const RouteRule rule = {static_cast<int32_t>(route.router->rows), route.top_k, route.renormalise,
                              route.per_expert_scale != nullptr ? route.per_expert_scale->values.data() : nullptr};
      kernels.elementwise.route(rule, values.floats(item.input, row), routes.experts.data() + row * route.top_k,
                                routes.weights.data() + row * route.top_k);
      return;
    }
  }
}

}  // namespace cohort::cpu
